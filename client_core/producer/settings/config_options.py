"""The supported settings: Kafka's names, types, ranges and defaults, with descriptions.

`OPTIONS` is the one table that docs and `pilotfish settings` read. TLS and SASL settings are in
`security_options.py`; `config_refusals.py` says why other names are refused. Pure. Source:
ProducerConfig.configDef, Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from client_core.client.network_client_config import AllowedHosts
from client_core.producer.settings.config_def import (
    BOOLEAN,
    FILLED_LIST,
    INT,
    INT_MAX,
    LIST,
    LONG,
    STRING,
    Option,
    Rule,
    at_least,
    between,
    between_or,
    one_of,
    one_of_any_case,
)
from client_core.producer.settings.security_options import SECURITY_OPTIONS


def _complaint_about_hosts(entries: tuple[str, ...]) -> str | None:
    try:
        AllowedHosts.parse(entries)
    except ValueError as error:
        return f"can't be used: {error}"
    return None


BOOTSTRAP_SERVERS: Final = Option(
    "bootstrap.servers",
    LIST,
    None,
    FILLED_LIST,
    "The host:port pairs to find the cluster by, comma separated.",
    required=True,
)
CLIENT_ID: Final = Option("client.id", STRING, "", None, "The name brokers log and apply quotas to.")
CLIENT_DNS_LOOKUP: Final = Option(
    "client.dns.lookup",
    STRING,
    "use_all_dns_ips",
    one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "How host names are resolved: try all addresses, or expand bootstrap names to canonical ones.",
)
ALLOWED_BROKER_HOSTS: Final = Option(
    "allowed.broker.hosts",
    LIST,
    "",
    Rule("", _complaint_about_hosts),
    "Where brokers may be: names, *.suffixes, addresses, CIDR ranges; empty: anywhere. See docs/security.md.",
    is_ours=True,
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
IDEMPOTENCE_RESTART: Final = Option(
    "idempotence.restart.enable",
    BOOLEAN,
    "false",
    None,
    "Whether a producer gets a new id after a fatal idempotence error; only waiting records fail.",
    is_ours=True,
)
RETRIES: Final = Option(
    "retries",
    INT,
    "2147483647",
    between(0, INT_MAX),
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
    "batch.size", INT, "16384", at_least(0), "The largest batch of a partition, in bytes."
)
SUBMIT_BATCH_SIZE: Final = Option(
    "submit.batch.size",
    INT,
    "0",
    at_least(0),
    "The largest batch for the records of one request; 0: batch.size.",
    is_ours=True,
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
    "retry.backoff.max.ms",
    LONG,
    "1000",
    at_least(0),
    "The longest pause before a failed request is tried again; the pause doubles with each failure.",
)
RECONNECT_BACKOFF_MS: Final = Option(
    "reconnect.backoff.ms", LONG, "50", at_least(0), "The first pause before a lost connection is made again."
)
RECONNECT_BACKOFF_MAX_MS: Final = Option(
    "reconnect.backoff.max.ms",
    LONG,
    "1000",
    at_least(0),
    "The longest pause before a lost connection is made again; the pause doubles with each failure.",
)
SETUP_TIMEOUT_MS: Final = Option(
    "socket.connection.setup.timeout.ms", LONG, "10000", None, "How long the first try to connect may take."
)
SETUP_TIMEOUT_MAX_MS: Final = Option(
    "socket.connection.setup.timeout.max.ms",
    LONG,
    "30000",
    None,
    "The longest time that a try to connect may take; the time grows with each failed try.",
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
    "metadata.max.age.ms", LONG, "300000", at_least(0), "The age at which metadata is refreshed."
)
METADATA_MAX_IDLE_MS: Final = Option(
    "metadata.max.idle.ms", LONG, "300000", at_least(5000), "After how long an unused topic is forgotten."
)
METADATA_RECOVERY_STRATEGY: Final = Option(
    "metadata.recovery.strategy",
    STRING,
    "rebootstrap",
    one_of_any_case("REBOOTSTRAP", "NONE"),
    "What to do when no known broker answers: restart from bootstrap.servers, or nothing.",
)
REBOOTSTRAP_TRIGGER_MS: Final = Option(
    "metadata.recovery.rebootstrap.trigger.ms",
    LONG,
    "300000",
    at_least(0),
    "After how long without metadata the client restarts from bootstrap.servers.",
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
    "If a broker accepts no requests for this time, records without a key go to others; 0: never.",
)
LOST_LEADER_PROBE_INTERVAL_MS: Final = Option(
    "partitioner.lost.leader.probe.interval.ms",
    LONG,
    "0",
    at_least(0),
    "How often a disconnected broker is probed. Meanwhile records without a key avoid it; 0: they wait.",
    is_ours=True,
)
IGNORE_KEYS: Final = Option(
    "partitioner.ignore.keys", BOOLEAN, "false", None, "Whether keys are ignored when a partition is chosen."
)
EXIT_FLUSH_TIMEOUT_MS: Final = Option(
    "exit.flush.timeout.ms",
    LONG,
    "5000",
    at_least(0),
    "How long a process exit waits for unclosed producers to send; 0: not at all.",
    is_ours=True,
)
COMPRESSION_TYPE: Final = Option(
    "compression.type",
    STRING,
    "none",
    one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "How batches are compressed. zstd needs brokers of Kafka 2.1 or newer.",
)
COMPRESSION_GZIP_LEVEL: Final = Option(
    "compression.gzip.level",
    INT,
    "-1",
    between_or(1, 9, -1),
    "gzip's level: 9 compresses most, 1 is fastest, -1 is zlib's default.",
)
COMPRESSION_LZ4_LEVEL: Final = Option(
    "compression.lz4.level",
    INT,
    "9",
    between(1, 17),
    "lz4's level: 9 is fast. Any other level is slower and compresses more, the higher the more.",
)
COMPRESSION_ZSTD_LEVEL: Final = Option(
    "compression.zstd.level",
    INT,
    "3",
    between(-131072, 22),
    "zstd's level: higher is smaller and slower; below 0 is fastest.",
)

#: The settings of producing, in the order of the docs: connection, delivery, batching, time, metadata,
#: partitioner.
PRODUCER_OPTIONS: Final = (
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    CLIENT_DNS_LOOKUP,
    ALLOWED_BROKER_HOSTS,
    ACKS,
    ENABLE_IDEMPOTENCE,
    IDEMPOTENCE_RESTART,
    RETRIES,
    MAX_IN_FLIGHT,
    BATCH_SIZE,
    SUBMIT_BATCH_SIZE,
    LINGER_MS,
    BUFFER_MEMORY,
    MAX_REQUEST_SIZE,
    COMPRESSION_TYPE,
    COMPRESSION_GZIP_LEVEL,
    COMPRESSION_LZ4_LEVEL,
    COMPRESSION_ZSTD_LEVEL,
    MAX_BLOCK_MS,
    DELIVERY_TIMEOUT_MS,
    EXIT_FLUSH_TIMEOUT_MS,
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
    LOST_LEADER_PROBE_INTERVAL_MS,
    IGNORE_KEYS,
)

#: Every setting that is honoured.
OPTIONS: Final = (*PRODUCER_OPTIONS, *SECURITY_OPTIONS)

#: The names of all options, and of their companions `….file`.
NAMES: Final = frozenset(name for option in OPTIONS for name in (option.name, option.file_name) if name)
