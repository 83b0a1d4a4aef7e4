"""The settings this client honours: Kafka's names, types, ranges and defaults, and a line on each for people.

`OPTIONS` is the one table that docs and `pilotfish help` read; `config_refusals.py` says why other names are
not taken. Values come as text, as from an environment or a properties file, or as Python values. Pure.
Source: ProducerConfig.configDef, ConfigDef.parseType and its validators, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from client_core.errors import ConfigError
from client_core.network.secret import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


def invalid_value(name: str, value: object, why: str) -> ConfigError:
    """Java's ConfigException(name, value, message)."""
    return ConfigError(f"Invalid value {value} for configuration {name}: {why}", name=name)


# -- types ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind(Generic[_T]):
    """A type of ConfigDef: its name there, and how a value of it is read."""

    name: str
    parse: Callable[[str, object], _T]
    secret: bool = False


def _parse_integer(name: str, value: object, kind: str, bits: int, largest: int) -> int:
    if isinstance(value, str):
        text = value.strip()
        digits = text[1:] if text[:1] in ("-", "+") else text
        # int() would take underscores and foreign digits too, parseInt doesn't.
        if not (digits.isascii() and digits.isdigit()):
            raise invalid_value(name, value, f"Not a number of type {kind}")
        number = int(text)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        article = f"{bits}-bit integer" if bits == 32 else f"{bits}-bit integer (long)"
        raise invalid_value(
            name, value, f"Expected value to be a {article}, but it was a {type(value).__name__}"
        )
    if not -largest - 1 <= number <= largest:
        raise invalid_value(name, value, f"Not a number of type {kind}")
    return number


def _parse_int(name: str, value: object) -> int:
    return _parse_integer(name, value, "INT", 32, _INT_MAX)


def _parse_long(name: str, value: object) -> int:
    return _parse_integer(name, value, "LONG", 64, _LONG_MAX)


def _parse_boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in ("true", "false"):
        raise invalid_value(name, value, "Expected value to be either true or false")
    return word == "true"


def _parse_string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise invalid_value(
            name, value, f"Expected value to be a string, but it was a {type(value).__name__}"
        )
    return value.strip()


def _parse_list(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        text = value.strip()
        return tuple(part.strip() for part in text.split(",")) if text else ()
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return tuple(str(part) for part in value)
    raise invalid_value(name, value, "Expected a comma separated list.")


def _parse_password(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise invalid_value(
            name, HIDDEN, f"Expected value to be a string, but it was a {type(value).__name__}"
        )
    return value.strip()


INT: Final = Kind("INT", _parse_int)
LONG: Final = Kind("LONG", _parse_long)
BOOLEAN: Final = Kind("BOOLEAN", _parse_boolean)
STRING: Final = Kind("STRING", _parse_string)
LIST: Final = Kind("LIST", _parse_list)
PASSWORD: Final = Kind("PASSWORD", _parse_password, secret=True)


# -- valid values --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule(Generic[_T]):
    """Which values of a type are valid:

    in Kafka's notation, and as a check that says what is wrong, or None.
    """

    text: str
    complaint: Callable[[_T], str | None]


def at_least(smallest: int) -> Rule[int]:
    def complaint(value: int) -> str | None:
        return f"Value must be at least {smallest}" if value < smallest else None

    return Rule(f"[{smallest},...]", complaint)


def between(smallest: int, largest: int) -> Rule[int]:
    def complaint(value: int) -> str | None:
        if value > largest:
            return f"Value must be no more than {largest}"
        return at_least(smallest).complaint(value)

    return Rule(f"[{smallest},...,{largest}]", complaint)


def one_of(*words: str) -> Rule[str]:
    def complaint(value: str) -> str | None:
        return None if value in words else f"String must be one of: {', '.join(words)}"

    return Rule(f"[{', '.join(words)}]", complaint)


def one_of_any_case(*words: str) -> Rule[str]:
    def complaint(value: str) -> str | None:
        if value.upper() in words:
            return None
        return f"String must be one of (case insensitive): {', '.join(words)}"

    return Rule(f"(case insensitive) [{', '.join(words)}]", complaint)


def _list_complaint(values: tuple[str, ...]) -> str | None:
    if not values:
        return "must not be empty. Valid values include: any non-empty value"
    if len(set(values)) != len(values):
        return "values must not be duplicated."
    return None if all(values) else "values must not be empty."


_FILLED_LIST: Final = Rule("", _list_complaint)


# -- options -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option(Generic[_T]):
    """One setting. `default` is in Kafka's own spelling; None where a value must be given."""

    name: str
    kind: Kind[_T]
    default: str | None
    valid: Rule[_T] | None
    doc: str

    def read(self, value: object) -> _T:
        """The typed value; raises ConfigError in Kafka's words."""
        parsed = self.kind.parse(self.name, value)
        complaint = self.valid.complaint(parsed) if self.valid is not None else None
        if complaint is None:
            return parsed
        if self.kind.name == "LIST":
            raise ConfigError(f"Configuration '{self.name}' {complaint}", name=self.name)
        raise invalid_value(self.name, HIDDEN if self.kind.secret else parsed, complaint)

    def show(self, value: object) -> str:
        """The value as logs, reprs and status answers may show it."""
        if self.kind.secret:
            return HIDDEN
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


BOOTSTRAP_SERVERS: Final = Option(
    "bootstrap.servers",
    LIST,
    None,
    _FILLED_LIST,
    "The host:port pairs to find the cluster by, comma separated.",
)
CLIENT_ID: Final = Option("client.id", STRING, "", None, "The name brokers log and apply quotas to.")
CLIENT_DNS_LOOKUP: Final = Option(
    "client.dns.lookup",
    STRING,
    "use_all_dns_ips",
    one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "How host names are resolved: try each address in turn, or expand bootstrap names to canonical ones.",
)
SECURITY_PROTOCOL: Final = Option(
    "security.protocol",
    STRING,
    "PLAINTEXT",
    one_of_any_case("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
    "How to talk to brokers. Only PLAINTEXT is supported yet.",
)
ACKS: Final = Option(
    "acks",
    STRING,
    "all",
    one_of("all", "-1", "0", "1"),
    "Whose acknowledgement ends a write: none (0), the leader (1), or every in-sync replica (all).",
)
ENABLE_IDEMPOTENCE: Final = Option(
    "enable.idempotence", BOOLEAN, "true", None, "Whether retries can neither duplicate nor reorder records."
)
RETRIES: Final = Option(
    "retries",
    INT,
    "2147483647",
    between(0, _INT_MAX),
    "How often a failed batch is sent again within delivery.timeout.ms.",
)
MAX_IN_FLIGHT: Final = Option(
    "max.in.flight.requests.per.connection",
    INT,
    "5",
    at_least(1),
    "Unanswered requests per connection; at most 5 with idempotence.",
)
BATCH_SIZE: Final = Option(
    "batch.size", INT, "16384", at_least(0), "Bytes that one partition's batch may reach."
)
LINGER_MS: Final = Option("linger.ms", LONG, "5", at_least(0), "How long a batch waits to be filled.")
BUFFER_MEMORY: Final = Option(
    "buffer.memory", LONG, "33554432", at_least(0), "Bytes of records that may wait to be acknowledged."
)
MAX_REQUEST_SIZE: Final = Option(
    "max.request.size",
    INT,
    "1048576",
    at_least(0),
    "Largest Produce request, and so the largest record, in bytes.",
)
MAX_BLOCK_MS: Final = Option(
    "max.block.ms", LONG, "60000", at_least(0), "How long send() may wait for metadata and for buffer memory."
)
DELIVERY_TIMEOUT_MS: Final = Option(
    "delivery.timeout.ms",
    INT,
    "120000",
    at_least(0),
    "How long a record may take from send to acknowledgement.",
)
REQUEST_TIMEOUT_MS: Final = Option(
    "request.timeout.ms", INT, "30000", at_least(0), "How long to wait for the answer to one request."
)
RETRY_BACKOFF_MS: Final = Option(
    "retry.backoff.ms", LONG, "100", at_least(0), "The first pause before a failed request is tried again."
)
RETRY_BACKOFF_MAX_MS: Final = Option(
    "retry.backoff.max.ms", LONG, "1000", at_least(0), "The longest such pause; it doubles with each failure."
)
RECONNECT_BACKOFF_MS: Final = Option(
    "reconnect.backoff.ms", LONG, "50", at_least(0), "The first pause before a lost connection is made again."
)
RECONNECT_BACKOFF_MAX_MS: Final = Option(
    "reconnect.backoff.max.ms",
    LONG,
    "1000",
    at_least(0),
    "The longest such pause; it doubles with each failure.",
)
SETUP_TIMEOUT_MS: Final = Option(
    "socket.connection.setup.timeout.ms", LONG, "10000", None, "How long the first try to connect may take."
)
SETUP_TIMEOUT_MAX_MS: Final = Option(
    "socket.connection.setup.timeout.max.ms",
    LONG,
    "30000",
    None,
    "How long any later try to connect may take.",
)
CONNECTIONS_MAX_IDLE_MS: Final = Option(
    "connections.max.idle.ms",
    LONG,
    "540000",
    None,
    "After how long an unused connection is closed; negative: never.",
)
SEND_BUFFER: Final = Option(
    "send.buffer.bytes", INT, "131072", at_least(-1), "The socket's SO_SNDBUF; -1 leaves it to the system."
)
RECEIVE_BUFFER: Final = Option(
    "receive.buffer.bytes", INT, "32768", at_least(-1), "The socket's SO_RCVBUF; -1 leaves it to the system."
)
METADATA_MAX_AGE_MS: Final = Option(
    "metadata.max.age.ms", LONG, "300000", at_least(0), "After how long metadata is fetched again unasked."
)
METADATA_MAX_IDLE_MS: Final = Option(
    "metadata.max.idle.ms", LONG, "300000", at_least(5000), "After how long an unused topic is forgotten."
)
METADATA_RECOVERY_STRATEGY: Final = Option(
    "metadata.recovery.strategy",
    STRING,
    "rebootstrap",
    one_of_any_case("REBOOTSTRAP", "NONE"),
    "What to do when no known broker answers: begin again with bootstrap.servers, or nothing.",
)
REBOOTSTRAP_TRIGGER_MS: Final = Option(
    "metadata.recovery.rebootstrap.trigger.ms",
    LONG,
    "300000",
    at_least(0),
    "After how long without metadata the client begins again with bootstrap.servers.",
)
ADAPTIVE_PARTITIONING: Final = Option(
    "partitioner.adaptive.partitioning.enable",
    BOOLEAN,
    "true",
    None,
    "Whether records without a key go to faster brokers more often.",
)
AVAILABILITY_TIMEOUT_MS: Final = Option(
    "partitioner.availability.timeout.ms",
    LONG,
    "0",
    at_least(0),
    "After how long a broker that takes no requests is left out for records without a key; 0: never.",
)
IGNORE_KEYS: Final = Option(
    "partitioner.ignore.keys", BOOLEAN, "false", None, "Whether keys play no part in choosing a partition."
)
COMPRESSION_TYPE: Final = Option(
    "compression.type",
    STRING,
    "none",
    one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "How batches are compressed. Only none is supported yet.",
)

#: Every setting that is honoured, as a reader meets them: connection, delivery, batching, time, metadata,
#: partitioner.
OPTIONS: Final = (
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    CLIENT_DNS_LOOKUP,
    SECURITY_PROTOCOL,
    ACKS,
    ENABLE_IDEMPOTENCE,
    RETRIES,
    MAX_IN_FLIGHT,
    BATCH_SIZE,
    LINGER_MS,
    BUFFER_MEMORY,
    MAX_REQUEST_SIZE,
    COMPRESSION_TYPE,
    MAX_BLOCK_MS,
    DELIVERY_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    RETRY_BACKOFF_MS,
    RETRY_BACKOFF_MAX_MS,
    RECONNECT_BACKOFF_MS,
    RECONNECT_BACKOFF_MAX_MS,
    SETUP_TIMEOUT_MS,
    SETUP_TIMEOUT_MAX_MS,
    CONNECTIONS_MAX_IDLE_MS,
    SEND_BUFFER,
    RECEIVE_BUFFER,
    METADATA_MAX_AGE_MS,
    METADATA_MAX_IDLE_MS,
    METADATA_RECOVERY_STRATEGY,
    REBOOTSTRAP_TRIGGER_MS,
    ADAPTIVE_PARTITIONING,
    AVAILABILITY_TIMEOUT_MS,
    IGNORE_KEYS,
)

#: Their names.
NAMES: Final = frozenset(option.name for option in OPTIONS)
