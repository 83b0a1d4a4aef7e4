"""Parses and checks the options of `format("pilotfish")`.

An unknown name is refused with a list of the known ones, so a misspelt deadline is not ignored. Spark's own
options of a stream are ignored. `docs/pipeline-datasource.md` explains all options. Pure, except for the
token file, which is read when the token is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from pipeline.datasource.sidecar_http import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_URL: Final = "http://127.0.0.1:8085"

TABLES: Final = ("topics", "partitions", "brokers")

#: What Spark adds to the options of a streaming query.
_SPARKS_OWN: Final = {"checkpointlocation", "queryname"}

_COMMON: Final = ("url", "token", "token_file", "ca_file", "timeout_ms", "retry_timeout_ms")
_OF_READS: Final = (*_COMMON, "table", "topics", "internal", "splits")
_OF_WRITES: Final = (*_COMMON, "topic", "batch_records", "batch_bytes", "write_id")


class _Bounds(NamedTuple):
    default: int
    least: int
    greatest: int


_NUMBERS: Final = {
    # Kafka's delivery.timeout.ms: a sidecar's default time limit for a produce.
    "timeout_ms": _Bounds(120_000, 100, 86_400_000),
    # Less than the ten minutes for which a sidecar remembers an idempotency key, more than its start takes.
    "retry_timeout_ms": _Bounds(300_000, 0, 86_400_000),
    # The sidecar's own bounds are 100,000 records and 16 MiB a request.
    "batch_records": _Bounds(1_000, 1, 100_000),
    "batch_bytes": _Bounds(1 << 20, 1, 1 << 30),
    "splits": _Bounds(8, 1, 1_000),
}

#: For reads: a user waits for them, and a failed read leaves nothing half done.
_READ_RETRY_TIMEOUT_MS: Final = 10_000

#: A superset of RFC 6750's b64token. The sidecar checks the token; this keeps it on one header line.
_TOKEN: Final = re.compile(r"[!-~]+")
#: Part of an Idempotency-Key, whose 255 characters must also hold a digest and numbers.
_WRITE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,120}")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a sidecar listens: a host and port, or a Unix domain socket."""

    scheme: str
    host: str
    port: int
    socket_path: str = ""

    def __str__(self) -> str:
        if self.socket_path:
            return f"unix:{self.socket_path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a sidecar. The token is not in the repr."""

    address: Address
    timeout_ms: int
    retry_timeout_ms: int
    token_file: str | None = None
    ca_file: str | None = None
    token: str | None = field(default=None, repr=False)

    def current_token(self) -> str | None:
        """Returns the token, read from its file on each call if there is one, so that it can be rotated.

        Raises InvalidOptionError if the file can't be read or contains no token.
        """
        if self.token_file is None:
            return self.token
        try:
            token = Path(self.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOptionError(
                f"token_file {self.token_file} can't be read here ({_reason(error)}); it must be on the "
                "driver and on each executor, as a mounted secret is"
            ) from error
        return _checked_token(token, f"token_file {self.token_file}")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read. `topics`: names, or prefixes followed by a star; empty: all that the token may read."""

    access: Access
    table: str
    topics: tuple[str, ...]
    internal: bool
    splits: int


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How rows become requests. `topic` None: each row names its own. `write_id` None: one is generated."""

    access: Access
    topic: str | None
    batch_records: int
    batch_bytes: int
    write_id: str | None


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Returns the options of a read. Raises InvalidOptionError with one sentence."""
    own = {"retry_timeout_ms": str(_READ_RETRY_TIMEOUT_MS)} | _known(given, _OF_READS, "read")
    table = own.get("table")
    if table not in TABLES:
        reported = "is missing" if table is None else f"can't be {table!r}"
        raise InvalidOptionError(f"option table {reported}; it is one of {', '.join(TABLES)}")
    topics = tuple(filter(None, (name.strip() for name in own.get("topics", "").split(","))))
    for name in topics:
        if "*" in name[:-1]:
            raise InvalidOptionError(
                f"option topics: {name!r} has a star inside; a pattern is a name, a beginning with a star "
                "(orders*), or *"
            )
    if table == "brokers" and topics:
        raise InvalidOptionError("option topics: brokers are the cluster's, not a topic's; leave it out")
    internal = own.get("internal", "false").lower()
    if internal not in ("true", "false"):
        raise InvalidOptionError(f"option internal is true or false, not {internal!r}")
    return ReadOptions(_access(own), table, topics, internal == "true", _number(own, "splits"))


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Returns the options of a write. Raises InvalidOptionError with one sentence."""
    own = _known(given, _OF_WRITES, "write")
    write_id = own.get("write_id")
    if write_id is not None and not _WRITE_ID.fullmatch(write_id):
        raise InvalidOptionError("option write_id is 1 to 120 letters, digits, or any of . _ : -")
    if own.get("topic") == "":
        raise InvalidOptionError("option topic is empty; name a topic, or give the rows a column topic")
    return WriteOptions(
        _access(own), own.get("topic"), _number(own, "batch_records"), _number(own, "batch_bytes"), write_id
    )


def _known(given: Mapping[str, str], names: tuple[str, ...], what: str) -> dict[str, str]:
    own = {name.lower(): value for name, value in given.items() if name.lower() not in _SPARKS_OWN}
    if "path" in own:
        raise InvalidOptionError(
            "pilotfish takes no path: the data to read is named by the options table and topics, "
            "where rows go by the option topic"
        )
    unknown = sorted(own.keys() - set(names))
    if unknown:
        raise InvalidOptionError(f"a {what} has no option {unknown[0]}; it has {', '.join(names)}")
    return own


def _number(own: Mapping[str, str], name: str) -> int:
    bounds = _NUMBERS[name]
    text = own.get(name)
    if text is None:
        return bounds.default
    if not (text.isascii() and text.isdigit()) or not bounds.least <= int(text) <= bounds.greatest:
        raise InvalidOptionError(
            f"option {name} is a whole number from {bounds.least} to {bounds.greatest}, not {text!r}"
        )
    return int(text)


def _access(own: Mapping[str, str]) -> Access:
    if "token" in own and "token_file" in own:
        raise InvalidOptionError("token and token_file are both given; give the file alone")
    token = own.get("token")
    return Access(
        address_of(own.get("url", DEFAULT_URL)),
        _number(own, "timeout_ms"),
        _number(own, "retry_timeout_ms"),
        own.get("token_file"),
        own.get("ca_file"),
        None if token is None else _checked_token(token, "option token"),
    )


def _checked_token(token: str, place: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise InvalidOptionError(
            f"{place}: is not a token; it must be one line of printable ASCII without blanks"
        )
    return token


def address_of(url: str) -> Address:
    """Parses `http://host:port`, `https://host:port` or `unix:/path`. Raises InvalidOptionError."""
    wrong = InvalidOptionError(
        f"option url {url!r} is not the address of a sidecar: http://127.0.0.1:8085, https://host:port, "
        "or unix:/path/to/socket, without a path behind it"
    )
    if url.startswith("unix:"):
        path = "/" + url.removeprefix("unix:").lstrip("/")
        if path == "/":
            raise wrong
        return Address("unix", "localhost", 0, path)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise wrong from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise wrong
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise wrong
    return Address(parts.scheme, parts.hostname, 8085 if port is None else port)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
