"""ProducerConfig: the settings of one producer, validated together, immutable.

Only `from_mapping` builds it, from Kafka's names, so that every value passes Kafka's types, ranges and rules
between settings (PROD-10, PROD-11). `config_options.py` has the table of settings, `security_settings.py` the
TLS and SASL rules. KafkaProducer derives the lower packages' configs from it. Reads no file, logs nothing.
Any thread. Source: ProducerConfig, KafkaProducer, Kafka 4.3.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from client_core.errors import ConfigError
from client_core.producer.settings import config_options as options
from client_core.producer.settings.config_def import INT_MAX, SHORT_MAX
from client_core.producer.settings.config_options import PRODUCER_OPTIONS
from client_core.producer.settings.given_settings import GivenSettings, Remark
from client_core.producer.settings.security_settings import security_config, security_shown

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from client_core.network.security_config import SecurityConfig

_log: Final = logging.getLogger(__name__)

#: With more requests in flight, a broker could not detect all duplicates.
#: Source: ProducerConfig.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION_FOR_IDEMPOTENCE.
_MAX_IN_FLIGHT_WITH_IDEMPOTENCE: Final = 5

#: Java counts producers within the process; a counter would be global state, so every nameless producer is
#: the first.
DEFAULT_CLIENT_ID: Final = "producer-1"


@dataclass(frozen=True, slots=True, repr=False)
class ProducerConfig:
    """Kafka's producer settings by their own names, dots as underscores.

    Kafka's -1 for "none" is None here.
    """

    bootstrap_servers: tuple[str, ...]
    client_id: str
    client_dns_lookup: str
    allowed_broker_hosts: tuple[str, ...]
    security: SecurityConfig
    acks: str  # all, 1 or 0
    enable_idempotence: bool
    idempotence_restart_enable: bool
    retries: int
    max_in_flight_requests_per_connection: int
    batch_size: int
    submit_batch_size: int
    linger_ms: int
    buffer_memory: int
    max_request_size: int
    compression_type: str  # none, gzip, snappy, lz4 or zstd
    compression_gzip_level: int | None  # None: zlib's own choice
    compression_lz4_level: int
    compression_zstd_level: int
    max_block_ms: int
    delivery_timeout_ms: int
    exit_flush_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int | None
    send_buffer_bytes: int | None
    receive_buffer_bytes: int | None
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_strategy: str  # rebootstrap or none
    metadata_recovery_rebootstrap_trigger_ms: int
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_lost_leader_probe_interval_ms: int
    partitioner_ignore_keys: bool
    #: The settings that were given and have no effect, such as ssl.key.password with PLAINTEXT.
    unused: tuple[str, ...] = field(default=(), compare=False)
    #: Notes for the user. The producer made of it logs them once.
    remarks: tuple[Remark, ...] = field(default=(), compare=False)
    #: `name=value` of what `security` is made of, secrets masked.
    security_shown: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, object]) -> ProducerConfig:
        """Returns the config of these settings and Kafka's defaults. Raises ConfigError with the name."""
        given = GivenSettings(settings)
        security = security_config(given)
        request_timeout_ms = given.value(options.REQUEST_TIMEOUT_MS)
        linger_ms = given.value(options.LINGER_MS)
        return cls(
            bootstrap_servers=given.value(options.BOOTSTRAP_SERVERS),
            client_id=_client_id(given),
            client_dns_lookup=given.value(options.CLIENT_DNS_LOOKUP),
            allowed_broker_hosts=given.value(options.ALLOWED_BROKER_HOSTS),
            security=security,
            acks=_acks(given),
            enable_idempotence=_idempotence(given),
            idempotence_restart_enable=given.value(options.IDEMPOTENCE_RESTART),
            retries=given.value(options.RETRIES),
            max_in_flight_requests_per_connection=given.value(options.MAX_IN_FLIGHT),
            # batch.size=0 means no batching, which in practice is batches of one record.
            batch_size=max(1, given.value(options.BATCH_SIZE)),
            submit_batch_size=given.value(options.SUBMIT_BATCH_SIZE)
            if given.value(options.BATCH_SIZE)
            else 0,
            linger_ms=min(linger_ms, INT_MAX),
            buffer_memory=given.value(options.BUFFER_MEMORY),
            max_request_size=given.value(options.MAX_REQUEST_SIZE),
            compression_type=given.value(options.COMPRESSION_TYPE),
            compression_gzip_level=_none_below_zero(given.value(options.COMPRESSION_GZIP_LEVEL)),
            compression_lz4_level=given.value(options.COMPRESSION_LZ4_LEVEL),
            compression_zstd_level=given.value(options.COMPRESSION_ZSTD_LEVEL),
            max_block_ms=given.value(options.MAX_BLOCK_MS),
            delivery_timeout_ms=_delivery_timeout_ms(given, linger_ms, request_timeout_ms),
            exit_flush_timeout_ms=given.value(options.EXIT_FLUSH_TIMEOUT_MS),
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=given.value(options.RETRY_BACKOFF_MS),
            retry_backoff_max_ms=given.value(options.RETRY_BACKOFF_MAX_MS),
            reconnect_backoff_ms=given.value(options.RECONNECT_BACKOFF_MS),
            reconnect_backoff_max_ms=_reconnect_backoff_max_ms(given),
            socket_connection_setup_timeout_ms=given.value(options.SETUP_TIMEOUT_MS),
            socket_connection_setup_timeout_max_ms=given.value(options.SETUP_TIMEOUT_MAX_MS),
            connections_max_idle_ms=_none_below_zero(given.value(options.CONNECTIONS_MAX_IDLE_MS)),
            send_buffer_bytes=_none_below_zero(given.value(options.SEND_BUFFER)),
            receive_buffer_bytes=_none_below_zero(given.value(options.RECEIVE_BUFFER)),
            metadata_max_age_ms=given.value(options.METADATA_MAX_AGE_MS),
            metadata_max_idle_ms=given.value(options.METADATA_MAX_IDLE_MS),
            metadata_recovery_strategy=given.value(options.METADATA_RECOVERY_STRATEGY).lower(),
            metadata_recovery_rebootstrap_trigger_ms=given.value(options.REBOOTSTRAP_TRIGGER_MS),
            partitioner_adaptive_partitioning_enable=given.value(options.ADAPTIVE_PARTITIONING),
            partitioner_availability_timeout_ms=given.value(options.AVAILABILITY_TIMEOUT_MS),
            partitioner_lost_leader_probe_interval_ms=given.value(options.LOST_LEADER_PROBE_INTERVAL_MS),
            partitioner_ignore_keys=given.value(options.IGNORE_KEYS),
            unused=tuple(given.unused),
            remarks=tuple(given.remarks),
            security_shown=security_shown(given, security),
        )

    def __repr__(self) -> str:
        return f"<ProducerConfig {' '.join(self._shown())}>"

    def masked(self) -> dict[str, str]:
        """Returns every setting by Kafka's name, defaults included, secrets masked."""
        return {name: value for name, _, value in (each.partition("=") for each in self._shown())}

    def shown(self, names: Container[str]) -> str:
        """Returns `name=value` of the settings with these names, secrets masked: for logs."""
        return " ".join(each for each in self._shown() if each.partition("=")[0] in names)

    def _shown(self) -> Iterator[str]:
        for option in PRODUCER_OPTIONS:
            yield f"{option.name}={option.show(getattr(self, option.name.replace('.', '_')))}"
        yield from self.security_shown

    def log_remarks(self) -> None:
        """Logs the notes. Called by the producer that uses the config."""
        for remark in self.remarks:
            _log.log(remark.level, "%s", remark.text)


def _client_id(given: GivenSettings) -> str:
    """Returns client.id. Java takes any text, and fails when it builds the first request (a deviation)."""
    client_id = given.value(options.CLIENT_ID)
    try:
        fits = len(client_id.encode()) <= SHORT_MAX
    except UnicodeEncodeError as e:
        raise ConfigError("client.id is not valid Unicode", name="client.id") from e
    if not fits:
        raise ConfigError(f"client.id is longer than {SHORT_MAX} bytes of UTF-8", name="client.id")
    return client_id if options.CLIENT_ID in given else DEFAULT_CLIENT_ID


def _acks(given: GivenSettings) -> str:
    acks = given.value(options.ACKS)
    return "all" if acks == "-1" else acks


def _idempotence(given: GivenSettings) -> bool:
    """Returns whether the producer is idempotent:

    disabled without an error only if no setting requires it (PROD-10).
    """
    if not given.value(options.ENABLE_IDEMPOTENCE):
        return False
    asked_for = options.ENABLE_IDEMPOTENCE in given
    if given.value(options.RETRIES) == 0:
        if asked_for:
            raise ConfigError(
                "Must set retries to non-zero when using the idempotent producer.", name="retries"
            )
        given.note("Idempotence will be disabled because retries is set to 0.")
    if _acks(given) != "all":
        if asked_for:
            raise ConfigError(
                "Must set acks to all in order to use the idempotent producer. "
                "Otherwise we cannot guarantee idempotence.",
                name="acks",
            )
        given.note(f"Idempotence will be disabled because acks is set to {_acks(given)}, not set to 'all'.")
    in_flight = given.value(options.MAX_IN_FLIGHT)
    if in_flight > _MAX_IN_FLIGHT_WITH_IDEMPOTENCE:
        raise ConfigError(
            f"To use the idempotent producer, {options.MAX_IN_FLIGHT.name} must be set to at most "
            f"{_MAX_IN_FLIGHT_WITH_IDEMPOTENCE}. Current value is {in_flight}.",
            name=options.MAX_IN_FLIGHT.name,
        )
    return given.value(options.RETRIES) != 0 and _acks(given) == "all"


def _delivery_timeout_ms(given: GivenSettings, linger_ms: int, request_timeout_ms: int) -> int:
    """Returns delivery.timeout.ms; raised to linger.ms + request.timeout.ms if it is unset (PROD-11)."""
    timeout_ms = given.value(options.DELIVERY_TIMEOUT_MS)
    least_ms = min(min(linger_ms, INT_MAX) + request_timeout_ms, INT_MAX)
    if timeout_ms >= least_ms:
        return timeout_ms
    rule = "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"
    if options.DELIVERY_TIMEOUT_MS in given:
        raise ConfigError(rule, name="delivery.timeout.ms")
    given.warn(f"{rule}. Setting it to {least_ms}.")
    return least_ms


def _reconnect_backoff_max_ms(given: GivenSettings) -> int:
    """Returns the longest pause;

    the first one where only that was set. Source: postProcessReconnectBackoffConfigs.
    """
    if options.RECONNECT_BACKOFF_MS in given and options.RECONNECT_BACKOFF_MAX_MS not in given:
        given.warn(
            "Disabling exponential reconnect backoff because reconnect.backoff.ms is set, "
            "but reconnect.backoff.max.ms is not."
        )
        return given.value(options.RECONNECT_BACKOFF_MS)
    return given.value(options.RECONNECT_BACKOFF_MAX_MS)


def _none_below_zero(value: int) -> int | None:
    return value if value >= 0 else None
