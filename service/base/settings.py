"""The sidecar's settings with defaults, limits and descriptions.

`Settings(...)` reads nothing but its arguments; `settings_sources.py` reads flags, environment and files.
`make docs` writes them into docs/settings.md and the chart's schema; CONTRIBUTING.md has the recipe. Kafka's
settings are defined in `client_core/producer/settings/config_options.py` and documented in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Final, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from client_core import OPTIONS, ConfigError, ProducerConfig
from service.base.environment import PREFIX
from service.base.topic_names import fault_of_topic_name

#: Kafka settings with another default in the sidecar. Batches form while requests are in flight, so a single
#: record need not linger. A record without a key need not wait for a broker that died. The records of a large
#: request come together, so they need not be cut into small batches, unless batch.size is given.
SIDECAR_DEFAULTS: Final[Mapping[str, str]] = {
    "idempotence.restart.enable": "true",
    "linger.ms": "0",
    "partitioner.lost.leader.probe.interval.ms": "300",
    "submit.batch.size": "131072",
}


def with_sidecar_defaults(kafka: Mapping[str, str]) -> dict[str, str]:
    """Returns Kafka's settings with the sidecar's defaults for those that are not given."""
    defaults = dict(SIDECAR_DEFAULTS)
    if "batch.size" in kafka:
        del defaults["submit.batch.size"]
    return {**defaults, **kafka}


#: Settings of the client library that a sidecar refuses, with the reason.
NOT_IN_A_SIDECAR: Final[Mapping[str, str]] = {
    "idempotence.restart.enable": "it is always on in a sidecar",
    "exit.flush.timeout.ms": "a sidecar closes its producers within drain_timeout_ms",
}

#: Kafka's default of max.request.size, for which `InternalLimits` are made.
_USUAL_REQUEST_BYTES: Final = 1024 * 1024

#: The dialects that can be served besides the native API.
Dialect = Literal["rest-v2", "rest-v3", "cloudevents", "dapr"]
DIALECTS: Final[tuple[Dialect, ...]] = get_args(Dialect)


def _split(value: object) -> object:
    """Splits comma-separated texts, also those of repeated flags. Returns other values unchanged."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        return value
    return [part for text in texts for part in (p.strip() for p in text.split(",")) if part]


def _topic_or_empty(value: str) -> str:
    fault = fault_of_topic_name(value) if value else None
    if fault is not None:
        raise ValueError(fault)
    return value


def _topics(value: tuple[str, ...]) -> tuple[str, ...]:
    for topic in value:
        _topic_or_empty(topic)
    return value


#: A host as a Host header has it, without its port: a name, an IPv4 address, an IPv6 address in brackets.
_HOST: Final = re.compile(r"\*|[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")


def _hosts(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuses what no Host header can be equal to: all requests for that host would get 421."""
    for host in value:
        if not _HOST.fullmatch(host):
            raise ValueError(
                f"{host!r} is not a host; write a name or an address, IPv6 in brackets, without scheme and "
                "port; or * for any"
            )
    return value


#: An empty host would be every address of the machine.
Host = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Port = Annotated[int, Field(ge=0, le=65535)]
_HOUR_MS: Final = 3_600_000
Milliseconds = Annotated[int, Field(ge=0, le=_HOUR_MS)]


@dataclass(frozen=True, slots=True)
class InternalLimits:
    """Limits that are not settings; tests use smaller ones. They were settings earlier: see `removed`."""

    #: Bytes of labels that callers may keep in Dapr's metadata.
    dapr_labels_max_bytes: int = 65_536
    #: Bytes of events that may wait for each sink.
    events_max_waiting_bytes: int = 8 * 1024 * 1024
    #: Size at which a file of events is finished.
    events_file_max_bytes: int = 16 * 1024 * 1024
    #: How long a topic is remembered as unknown to the brokers.
    unknown_topic_memory_ms: int = 1_000
    #: Age at which the configs of a topic are fetched again.
    topic_configs_max_age_ms: int = 60_000
    #: How long an answer waits for the configs of its topic; then it is sent without them.
    topic_configs_wait_ms: int = 1_000
    #: Bytes of answers that may wait for callers who do not read them.
    max_unsent_bytes: int = 64 * 1024 * 1024
    #: Events that a watcher may fall behind before it is disconnected.
    watch_queue_events: int = 1_000
    #: Changes that are kept for watchers that reconnect.
    watch_history_events: int = 10_000
    #: Bytes of these changes.
    watch_history_bytes: int = 16 * 1024 * 1024
    #: How long changes are recorded after the last watcher has left.
    watch_linger_ms: int = 60_000
    #: Pause between two look-ups of a watched topic that does not exist.
    watch_look_up_ms: int = 5_000
    #: /v1/status reports a wait of at least this length as slow.
    slow_after_ms: int = 1_000
    #: Records of one stream that may be unacknowledged, or acknowledged and not yet read.
    stream_open_records: int = 20_000
    #: Bytes of one stream that may be unacknowledged.
    stream_open_bytes: int = 8 * 1024 * 1024
    #: Idempotency keys that are remembered.
    idempotency_max_keys: int = 10_000
    #: Topics that have their own label; the others share "_other".
    topic_metrics_limit: int = 100
    #: Time that one produce event of a partition covers.
    events_window_ms: int = 10_000
    #: Interval of heartbeat events.
    events_heartbeat_ms: int = 60_000
    #: Age at which a file of events is finished.
    events_file_max_age_ms: int = 600_000
    #: How long a look-up that is older than lookup_max_stale_ms waits for its refresh.
    lookup_refresh_wait_ms: int = 250
    #: How long brokers may leave requests unanswered, all of them, before readyz fails.
    readiness_unanswered_ms: int = 5_000
    #: How long a look-up without max_block_ms waits for the brokers' response.
    lookup_wait_ms: int = 5_000
    #: New unknown topic names that may be looked up per second.
    unknown_topics_per_second: int = 200
    #: Age of the list of all topics at which a caller's request fetches it again.
    listing_max_age_ms: int = 2_000
    #: Records that one request may have.
    max_records_per_request: int = 100_000
    #: Large bodies that are parsed at the same time.
    body_threads: int = 4
    #: Blocks of memory of this size are mapped, and returned to the system when they are freed.
    mapped_block_bytes: int = 4 * 1024 * 1024
    #: Size of the kernel's buffer for what a caller sends, and so of a read; 0 if the kernel decides.
    receive_buffer_bytes: int = 0
    #: Open connections to the API; fewer if the process may open fewer files, or has little memory.
    max_connections: int = 10_000
    #: Bytes of heads of requests, beyond the usual ones, until the requests are answered.
    large_heads_bytes: int = 4 * 1024 * 1024
    #: How long a caller may take to send the head of a request.
    request_timeout_ms: int = 30_000
    #: How long a caller may read nothing of its answer before it is cut off.
    stall_timeout_ms: int = 30_000
    #: Interval of comments to idle watchers.
    watch_heartbeat_ms: int = 15_000
    #: The largest record of a stream with Kafka's default for max.request.size: see `stream_line_bytes`.
    stream_max_line_bytes: int = 4 * 1024 * 1024


class Settings(BaseModel):
    """All settings, validated. Immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    api_host: Host = Field(
        default="127.0.0.1", description="Address of the API. Loopback admits only this machine or pod."
    )
    api_port: Port = Field(default=8085, description="The API's port; 0 chooses a free one.")
    admin_host: Host = Field(
        default="127.0.0.1", description="Address of probes and metrics; 0.0.0.0 in the chart."
    )
    admin_port: Port = Field(
        default=9464, description="The port of /livez /readyz /startupz /metrics; 0: a free one."
    )
    api_socket: str = Field(
        default="",
        description="Path of a Unix domain socket on which the API also listens; none if empty.",
    )
    api_socket_mode: Annotated[str, Field(pattern=r"^0?[0-7]{3}$")] = Field(
        default="0600", description="File mode of api_socket: who may connect."
    )
    api_tls_certificate_file: str = Field(
        default="", description="PEM certificates for TLS on the API's port; plain HTTP if empty."
    )
    api_tls_key_file: str = Field(default="", description="The PEM key of api_tls_certificate_file.")
    api_tls_client_ca_file: str = Field(
        default="", description="PEM authorities; clients then need a certificate signed by one of them."
    )
    tokens_file: str = Field(
        default="",
        description="The callers' tokens, hashed, and what each may do (docs/access.md); anyone if empty.",
    )
    quit_token_file: str = Field(
        default="",
        description="File with the token for POST /quitquitquit, which ends the sidecar; 404 if empty.",
    )
    admin_token_file: str = Field(
        default="",
        description="File with the token for /config /loglevel /profile /stacks (admin port); 404 if empty.",
    )
    dialects: Annotated[tuple[Dialect, ...], BeforeValidator(_split)] = Field(
        default=DIALECTS, description="Other APIs to serve besides the native one."
    )
    dapr_pubsub_names: Names = Field(
        default=("*",),
        description="The pubsub components that Dapr's callers may publish to; * for any name.",
    )
    console: bool = Field(
        default=True, description="Whether the console at / and the API document at /docs are served."
    )
    allowed_hosts: Annotated[Names, AfterValidator(_hosts)] = Field(
        default=("localhost", "127.0.0.1", "[::1]"),
        description="Host headers that the API accepts, without port; * for any.",
    )
    allowed_origins: Names = Field(
        default=(),
        description="Web origins that may call the API besides its own, such as https://ops.example.",
    )
    auto_create_topics: bool = Field(
        default=False,
        description="Whether produce requests may create unknown topics. Look-ups never do.",
    )
    warm_topics: Annotated[Names, AfterValidator(_topics)] = Field(
        default=(), description="Topics that are known from the start and never forgotten."
    )
    service_name: str = Field(
        default="",
        description="Name of the service beside this sidecar: for events, advice, and as app id for Dapr.",
    )
    advice: str = Field(
        default="",
        description="A file with the pipeline's advice (docs/advice.md), read at the start; none if empty.",
    )
    sidecar_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,128}$")] = Field(
        default="", description="Id of this sidecar in its events; the host's name if empty."
    )
    events_topic: Annotated[str, AfterValidator(_topic_or_empty)] = Field(
        default="", description="The Kafka topic for events (docs/events.md); none if empty."
    )
    events_folder: str = Field(
        default="", description="The folder for events, as files of JSON lines; none if empty."
    )
    events_files: int = Field(
        default=150, ge=1, description="How many finished files are kept; the oldest are deleted."
    )
    lookup_revalidate_after_ms: Milliseconds = Field(
        default=2_000,
        description="Age from which an answer is sent at once and refreshed in the background. Raise it if "
        "refreshes of many sidecars load the brokers.",
    )
    lookup_max_stale_ms: Milliseconds = Field(
        default=5_000,
        description="Age from which an answer is refreshed before it is sent, for at most 250 ms. Raise it "
        "if answers may be older; then fewer look-ups wait.",
    )
    unknown_topic_wait_ms: Milliseconds = Field(
        default=1_000,
        description="How long a produce without max_block_ms waits for a topic or partition that does not "
        "exist. Raise it if topics are created just before they are written to.",
    )
    max_body_bytes: int = Field(default=16 * 1024 * 1024, ge=1, description="The largest request body.")
    max_watchers: int = Field(default=100, ge=0, description="Callers that may watch metadata at once.")
    max_streams: int = Field(default=100, ge=0, description="Open streams of records.")
    stream_idle_timeout_ms: Annotated[int, Field(ge=1, le=86_400_000)] = Field(
        default=300_000, description="How long a stream may send nothing before it is ended."
    )
    idempotency_max_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=0,
        description="Bytes of answers that are kept for Idempotency-Key; 0 refuses such keys.",
    )
    idempotency_memory_ms: Annotated[int, Field(ge=0, le=86_400_000)] = Field(
        default=600_000,
        description="How long the answer for an Idempotency-Key is kept, memory permitting; at least twice "
        "delivery.timeout.ms.",
    )
    spool_folder: str = Field(
        default="",
        description="The folder of the spool (docs/spool.md), on a persistent disk; no spool if empty.",
    )
    spool_max_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=1024 * 1024,
        description="Maximum size of the spool, with dead letters.",
    )
    spool_topic_wait_ms: Annotated[int, Field(ge=1_000, le=3_600_000)] = Field(
        default=60_000,
        description="How long refused records are retried before they become dead letters.",
    )
    max_waiting_requests: int = Field(
        default=10_000,
        ge=1,
        description="Requests that may wait for metadata, memory or acknowledgements.",
    )
    max_waiting_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=1,
        description="Bytes of request bodies that may wait to be delivered.",
    )
    drain_delay_ms: Milliseconds = Field(
        default=0,
        description="How long requests are served after SIGTERM.",
    )
    drain_timeout_ms: Milliseconds = Field(
        default=20_000, description="How long accepted records may still be delivered after SIGTERM."
    )
    startup_require_metadata: Literal["wait", "strict", "none"] = Field(
        default="wait",
        description="startupz waits for metadata: for startup_max_wait_ms (wait), forever (strict) "
        "or not at all (none).",
    )
    startup_max_wait_ms: Milliseconds = Field(
        default=30_000,
        description="How long startupz waits for metadata if startup_require_metadata is wait.",
    )
    # A turn of a healthy loop may take some milliseconds.
    liveness_timeout_ms: Annotated[int, Field(ge=50, le=_HOUR_MS)] = Field(
        default=4_000,
        description="How long a turn of the I/O thread or of the event loop may take before livez fails.",
    )
    topic_metrics: bool = Field(default=False, description="Whether records are also counted by topic.")
    exemplars: bool = Field(
        default=True,
        description="Whether histograms of requests show the trace of a recent one, from its `traceparent`.",
    )
    access_log: bool = Field(
        default=False, description="A log line for each request. It costs more than a look-up."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level that is logged."
    )
    log_format: Literal["logfmt", "json"] = Field(
        default="logfmt", description="Format of log lines: logfmt, or JSON."
    )
    trace_headers: bool = Field(
        default=True,
        description="Whether traceparent and tracestate of a produce become headers of its records.",
    )
    tracing: Literal["off", "otlp"] = Field(
        default="off",
        description="Whether spans are made and sent by OTLP (docs/tracing.md); needs the extra otel.",
    )
    internal: InternalLimits = Field(default=InternalLimits(), repr=False)
    kafka: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Kafka's producer settings by Kafka's names, such as linger.ms.",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuses `api_port = true` of a file: true is 1 to Python."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is int:
            raise ValueError("must be a whole number")
        return value

    @field_validator("advice")
    @classmethod
    def _advice_is_a_file(cls, value: str) -> str:
        if value.startswith("topic:"):
            raise ValueError(
                "a sidecar can't read advice from a topic; name a file, which `pilotfish-pipeline advise "
                "--out FILE` or a consumer of that topic writes (docs/advice.md)"
            )
        return value

    def shown(self) -> str:
        """Returns `name=value` of the sidecar's own settings that were set, for logs. None is a secret."""
        names = [name for name in OWN_NAMES if name in self.model_fields_set]
        return " ".join(f"{name}={_shown(getattr(self, name))}" for name in names) or "defaults"

    def producer_config(self) -> ProducerConfig:
        """Returns Kafka's settings, validated. Raises ConfigError."""
        for name, reason in NOT_IN_A_SIDECAR.items():
            if name in self.kafka:
                raise ConfigError(f"{name}: is not a setting of the sidecar, {reason}; remove it", name=name)
        return ProducerConfig.from_mapping(with_sidecar_defaults(self.kafka))

    @property
    def stream_line_bytes(self) -> int:
        """Returns the size of the largest record of a stream: four times max.request.size, with bounds."""
        least = self.internal.stream_max_line_bytes
        wanted = least * self.producer_config().max_request_size // _USUAL_REQUEST_BYTES
        return max(least, min(wanted, self.max_body_bytes))


#: The sidecar's own settings. `kafka` is not included, because each source writes it differently.
OWN_NAMES: Final = tuple(name for name in Settings.model_fields if name not in ("internal", "kafka"))

#: Kafka's settings, and the client's own, that a sidecar accepts.
SIDECAR_OPTIONS: Final = tuple(option for option in OPTIONS if option.name not in NOT_IN_A_SIDECAR)

#: Limits that are not settings, with their values.
LIMITS: Final[Mapping[str, int]] = asdict(InternalLimits())

#: What to do instead of setting a limit, where there is something.
_INSTEAD: Final[Mapping[str, str]] = {
    "events_file_max_age_ms": "a topic (events_topic) is faster than files",
    "lookup_wait_ms": "a look-up may give max_block_ms",
    "max_connections": "the limit of open files (ulimit -n) and that of memory lower it",
    "max_records_per_request": "split larger requests, or stream the records; little memory lowers it",
    "stream_max_line_bytes": "it grows with max.request.size, up to max_body_bytes",
}

#: Settings of earlier versions, with the reason for their end.
REMOVED: Final[Mapping[str, str]] = {
    "dapr_app_id": "Dapr's callers see service_name; remove it, and set service_name to its value",
    **{
        name: f"its value is {value}" + (f": {_INSTEAD[name]}" if name in _INSTEAD else "") + "; remove it"
        for name, value in LIMITS.items()
    },
}


def removed(name: str) -> str:
    """Returns the error message for a setting of an earlier version."""
    return f"is no longer a setting, {REMOVED[name]}"


def settings_table() -> str:
    """Returns the sidecar's own settings as a Markdown table, for the docs."""
    lines = ["| flag | environment | default | what it does |", "|---|---|---|---|"]
    for name in OWN_NAMES:
        field = Settings.model_fields[name]
        default = _shown(field.default)
        lines.append(f"| `--{_flag(name)}` | `{PREFIX}{name.upper()}` | {default} | {field.description} |")
    return "\n".join(lines)


def kafka_settings_table() -> str:
    """Returns the supported Kafka settings, by Kafka's names, as a Markdown table."""
    lines = ["| name | default | valid | what it does |", "|---|---|---|---|"]
    for option in SIDECAR_OPTIONS:
        kafkas = option.default if option.kafka_default is None else option.kafka_default
        default = SIDECAR_DEFAULTS.get(option.name, option.default)
        shown = "must be given" if option.required else "none" if default is None else default or "empty"
        if default != kafkas:
            shown = f"{shown} ({'the library' if option.is_ours else 'Kafka'}: {kafkas})"
        rule = option.taken or option.valid
        valid = "" if rule is None else rule.text
        name = f"`{option.name}`" if option.file_name is None else f"`{option.name}`, `{option.file_name}`"
        lines.append(f"| {name} | {shown} | {valid} | {option.doc} |")
    return "\n".join(lines)


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ", ".join(map(str, default))
    return str(default)
