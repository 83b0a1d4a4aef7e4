"""ProducerConfig: Kafka's table of settings, the rules between them, and what is refused.

Twins of ProducerConfigTest and of KafkaProducerTest's cases on settings, Kafka 4.3.
"""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from client_core.errors import ConfigError
from client_core.network.security_config import SecurityProtocol
from client_core.producer.kafka_producer import KafkaProducer
from client_core.producer.settings.config import DEFAULT_CLIENT_ID, ProducerConfig
from client_core.producer.settings.config_options import OPTIONS, PRODUCER_OPTIONS
from client_core.producer.settings.config_refusals import UNSUPPORTED, UNSUPPORTED_FAMILIES, refusal

if TYPE_CHECKING:
    from client_core.producer.settings.config_def import Option

_GOLDEN: Final = Path(__file__).parents[2] / "golden" / "data" / "tables" / "producer_config_defaults.json"


def config(**settings: object) -> ProducerConfig:
    """A config from names with underscores for dots, which keyword arguments can hold."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9092", **named})


def table_of_kafka() -> dict[str, dict[str, Any]]:
    rows = json.loads(_GOLDEN.read_text())
    return {row["name"]: row for row in rows}


def in_kafkas_spelling(option: Option[Any], default: str | None) -> str:
    """A default as the golden table has it."""
    if option.required:
        return "<required>"
    if default in (None, "none") and option.name != "compression.type":
        return "null"
    assert default is not None
    return f"[{default.replace(',', ', ')}]" if option.kind.name == "LIST" else default


# -- the table -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: str(option.name))
def test_an_honoured_option_has_kafkas_type_default_and_valid_values(option: Option[object]) -> None:
    row = table_of_kafka().get(option.name)
    assert option.is_ours == (row is None)
    if row is None:
        return
    assert option.kind.name == row["type"]
    default = option.default if option.kafka_default is None else option.kafka_default
    assert in_kafkas_spelling(option, default) == row["default"]
    assert (option.valid.text if option.valid is not None else None) == row["valid"]


def test_defaults_that_are_not_kafkas_are_these() -> None:
    # What a reader must be told: docs show both.
    ours = {o.name: (o.default, o.kafka_default) for o in OPTIONS if o.kafka_default is not None}
    assert ours == {
        "ssl.truststore.type": ("PEM", "JKS"),
        "ssl.keystore.type": ("PEM", "JKS"),
        "sasl.mechanism": (None, "GSSAPI"),
        "sasl.login.connect.timeout.ms": ("10000", "none"),
        "sasl.login.read.timeout.ms": ("10000", "none"),
    }


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.default], ids=lambda option: str(option.name))
def test_every_default_is_valid(option: Option[object]) -> None:
    assert option.read(option.default) is not None


def test_every_password_may_come_from_a_file() -> None:
    secrets = {option.name for option in OPTIONS if option.kind.name == "PASSWORD"}
    may_be_files = {option.name for option in OPTIONS if option.may_be_file}
    assert may_be_files - secrets == {"sasl.username", "sasl.oauthbearer.client.credentials.client.id"}
    assert secrets <= may_be_files


def test_what_is_refused_is_kafkas() -> None:
    kafkas = set(table_of_kafka())
    assert set(UNSUPPORTED) <= kafkas
    for family in UNSUPPORTED_FAMILIES:
        assert any(name.startswith(family) for name in kafkas)


@pytest.mark.parametrize("name", sorted(table_of_kafka()))
def test_every_setting_of_kafka_is_honoured_or_refused_as_known(name: str) -> None:
    refused = refusal(name)
    honoured = name in {option.name for option in OPTIONS}
    assert (refused is None) == honoured
    assert refused is None or "is not a setting of" not in refused.message


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: str(option.name))
def test_an_honoured_option_is_explained_in_a_sentence(option: Option[object]) -> None:
    assert option.doc.endswith(".")
    assert len(option.doc) <= 110


@pytest.mark.java("ProducerConfigTest.DefaultMetadataRecoveryStrategy")
def test_an_empty_config_but_for_the_addresses_is_kafkas() -> None:
    defaults = config()
    assert defaults.linger_ms == 5
    assert defaults.acks == "all"
    assert defaults.enable_idempotence
    assert defaults.delivery_timeout_ms == 120_000
    assert defaults.max_block_ms == 60_000
    assert defaults.retries == 2**31 - 1
    assert defaults.client_id == DEFAULT_CLIENT_ID
    assert defaults.metadata_recovery_strategy == "rebootstrap"


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        config().linger_ms = 1  # type: ignore[misc]


# -- values --------------------------------------------------------------------------------------------------


def test_text_and_python_values_mean_the_same() -> None:
    as_text = config(linger_ms=" 7 ", enable_idempotence="TRUE", bootstrap_servers="a:1, b:2")
    as_values = config(linger_ms=7, enable_idempotence=True, bootstrap_servers=["a:1", "b:2"])
    assert as_text == as_values
    assert as_text.bootstrap_servers == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("linger.ms", "soon", "Invalid value soon for configuration linger.ms: Not a number of type LONG"),
        ("linger.ms", "1_000", "Invalid value 1_000 for configuration linger.ms: Not a number of type LONG"),
        ("linger.ms", "-1", "Invalid value -1 for configuration linger.ms: Value must be at least 0"),
        ("linger.ms", 2**63, "Not a number of type LONG"),
        ("linger.ms", 0.5, "Expected value to be a 64-bit integer (long), but it was a float"),
        ("batch.size", "2147483648", "Not a number of type INT"),
        ("batch.size", True, "Expected value to be a 32-bit integer, but it was a bool"),
        ("retries", "-1", "Invalid value -1 for configuration retries: Value must be at least 0"),
        ("acks", "2", "Invalid value 2 for configuration acks: String must be one of: all, -1, 0, 1"),
        ("acks", 1, "Expected value to be a string, but it was a int"),
        ("enable.idempotence", "yes", "Expected value to be either true or false"),
        ("compression.gzip.level", "10", "Value must be between 1 and 9 or equal to -1"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("compression.zstd.level", "23", "Value must be no more than 22"),
        ("sasl.login.refresh.window.factor", "0.4", "Value must be at least 0.5"),
        ("sasl.login.refresh.window.jitter", "0.26", "Value must be no more than 0.25"),
        ("sasl.login.refresh.window.factor", "much", "Not a number of type DOUBLE"),
        ("sasl.login.refresh.window.factor", "nan", "Not a number of type DOUBLE"),
        ("sasl.login.refresh.window.factor", "0_0.9", "Not a number of type DOUBLE"),
        ("sasl.login.refresh.window.factor", True, "Expected value to be a double, but it was a bool"),
        ("sasl.login.refresh.buffer.seconds", "32768", "Not a number of type SHORT"),
        ("sasl.login.refresh.buffer.seconds", 0.5, "Expected value to be a 16-bit integer (short), but"),
        pytest.param(
            "compression.type",
            "abc",
            "String must be one of: none, gzip, snappy, lz4, zstd",
            marks=pytest.mark.java("ProducerConfigTest.InvalidCompressionType"),
        ),
        pytest.param(
            "security.protocol",
            "abc",
            "String must be one of (case insensitive): SASL_SSL, PLAINTEXT,",
            marks=pytest.mark.java("ProducerConfigTest.InvalidSecurityProtocol"),
        ),
        pytest.param(
            "metadata.recovery.strategy",
            "abc",
            "String must be one of (case insensitive): REBOOTSTRAP, NONE",
            marks=pytest.mark.java("ProducerConfigTest.InvalidMetadataRecoveryStrategy"),
        ),
        ("metadata.max.idle.ms", "4999", "Value must be at least 5000"),
        pytest.param(
            "send.buffer.bytes",
            "-2",
            "Value must be at least -1",
            marks=pytest.mark.java("KafkaProducerTest.InvalidSocketSendBufferSize"),
        ),
        pytest.param(
            "receive.buffer.bytes",
            "-2",
            "Value must be at least -1",
            marks=pytest.mark.java("KafkaProducerTest.InvalidSocketReceiveBufferSize"),
        ),
        ("bootstrap.servers", "", "Configuration 'bootstrap.servers' must not be empty."),
        ("bootstrap.servers", "a:1,a:1", "Configuration 'bootstrap.servers' values must not be duplicated."),
        ("bootstrap.servers", "a:1,", "Configuration 'bootstrap.servers' values must not be empty."),
        ("bootstrap.servers", 7, "Expected a comma separated list."),
    ],
)
def test_a_value_of_the_wrong_type_or_out_of_range_is_refused_in_kafkas_words(
    name: str, value: object, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9092", name: value})
    assert message in caught.value.message
    assert caught.value.name == name


def test_addresses_are_required() -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({})
    assert str(caught.value) == (
        'Missing required configuration "bootstrap.servers" which has no default value.'
    )


@pytest.mark.java("KafkaProducerTest.OsDefaultSocketBufferSizes")
def test_minus_one_leaves_the_socket_buffers_to_the_system() -> None:
    sizes = config(send_buffer_bytes="-1", receive_buffer_bytes="-1")
    assert (sizes.send_buffer_bytes, sizes.receive_buffer_bytes) == (None, None)
    KafkaProducer(sizes).close()


def test_compression_and_its_levels_are_kafkas() -> None:
    plain = config()
    assert (plain.compression_type, plain.compression_gzip_level) == ("none", None)
    assert (plain.compression_lz4_level, plain.compression_zstd_level) == (9, 3)
    packed = config(compression_type="gzip", compression_gzip_level="9")
    assert (packed.compression_type, packed.compression_gzip_level) == ("gzip", 9)
    assert config(compression_zstd_level="-131072").compression_zstd_level == -131072


def test_a_negative_idle_time_means_connections_are_never_idle() -> None:
    assert config(connections_max_idle_ms="-1").connections_max_idle_ms is None


def test_a_batch_size_of_zero_means_batches_of_one_record() -> None:
    assert config(batch_size=0).batch_size == 1


def test_minus_one_is_another_word_for_all_acks() -> None:
    assert config(acks="-1") == config(acks="all")


def test_words_may_come_in_any_case_where_kafka_says_so() -> None:
    given = config(security_protocol="plaintext", metadata_recovery_strategy="NoNe")
    assert given.security.protocol is SecurityProtocol.PLAINTEXT
    assert given.metadata_recovery_strategy == "none"


@pytest.mark.java("KafkaProducerTest.ConstructorWithNotStringKey")
def test_a_name_that_is_no_text_is_refused() -> None:
    settings: dict[Any, object] = {"bootstrap.servers": "localhost:9999", 1: "not string key"}
    with pytest.raises(ConfigError, match=r"One or more keys is not a string\."):
        ProducerConfig.from_mapping(settings)


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("linger.sm", "linger.sm is not a setting of Kafka's producer; did you mean linger.ms?"),
        ("linger_ms", "linger_ms is not a setting of Kafka's producer; did you mean linger.ms?"),
        (
            "retry_backoff_x_ms",
            "retry_backoff_x_ms is not a setting of Kafka's producer; did you mean retry.backoff.max.ms?",
        ),
        ("Batch.Size", "Batch.Size is not a setting of Kafka's producer; did you mean batch.size?"),
        ("message.max.bytes.of.cake", "message.max.bytes.of.cake is not a setting of Kafka's producer"),
        ("transactional.id", "transactional.id is about transactions, which this client does not offer"),
        (
            "key.serializer",
            "key.serializer names a Java class, which this client can't load; keys and values are bytes "
            "here, and the library takes a callable as key_serializer and value_serializer of KafkaProducer",
        ),
        ("ssl.ca.location", "ssl.ca.location is librdkafka's name; Kafka's is ssl.truststore.location"),
        ("sasl.mechanisms", "sasl.mechanisms is librdkafka's name; Kafka's is sasl.mechanism"),
        (
            "linger.ms.file",
            "linger.ms.file is not taken: linger.ms holds no secret, and is given by its value",
        ),
    ],
)
def test_a_name_that_is_not_honoured_is_refused_with_its_reason(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9092", name: "s3cret"})
    assert str(caught.value) == message
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("ssl.truststore.password", "this client reads PEM stores, which have none"),
        ("ssl.keystore.password", "ssl.key.password is for an encrypted private key"),
        ("ssl.engine.factory.class", "names a Java class"),
        ("ssl.provider", "this client has OpenSSL's"),
        ("sasl.kerberos.service.name", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER are"),
        ("sasl.login.callback.handler.class", "names a Java class"),
        ("sasl.oauthbearer.jwks.endpoint.url", "is for brokers"),
        ("sasl.oauthbearer.assertion.private.key.file", "the client-credentials grant is"),
    ],
)
def test_what_only_java_or_a_broker_can_do_is_refused_with_what_to_do_instead(name: str, remedy: str) -> None:
    refused = refusal(name)
    assert refused is not None
    assert refused.message.startswith(f"{name} ")
    assert remedy in refused.message


def test_the_repr_names_every_setting_and_its_value() -> None:
    shown = repr(config(bootstrap_servers="a:1,b:2"))
    assert shown.startswith("<ProducerConfig bootstrap.servers=a:1,b:2 client.id=producer-1 ")
    assert all(f" {option.name}=" in shown for option in PRODUCER_OPTIONS)
    assert shown.endswith(" security.protocol=PLAINTEXT>")


def test_the_repr_tells_what_is_in_force_and_not_only_what_was_given() -> None:
    shown = repr(config(retries=0, linger_ms=100_000, request_timeout_ms=30_000))
    assert " enable.idempotence=False " in shown
    assert " delivery.timeout.ms=130000 " in shown


# -- rules between settings ----------------------------------------------------------------------------------


@pytest.mark.behaviour("PROD-10")
@pytest.mark.java("KafkaProducerTest.OverwriteAcksAndRetriesForIdempotentProducers")
def test_idempotence_comes_with_all_acks_and_every_retry() -> None:
    # Java's producer is transactional there, which ours refuses to be.
    plain = config()
    assert (plain.enable_idempotence, plain.acks, plain.retries) == (True, "all", 2**31 - 1)
    assert refusal("transactional.id") is not None


@pytest.mark.behaviour("PROD-10")
@pytest.mark.java("KafkaProducerTest.AcksAndIdempotenceForIdempotentProducers")
def test_idempotence_gives_way_to_fewer_acks_where_nobody_asked_for_it() -> None:
    off = config(acks="0", enable_idempotence="false")
    assert (off.enable_idempotence, off.acks) == (False, "0")
    off = config(acks="all", enable_idempotence="false")
    assert (off.enable_idempotence, off.acks) == (False, "all")
    for acks in ("0", "1"):
        gave_way = config(acks=acks)
        assert (gave_way.enable_idempotence, gave_way.acks) == (False, acks)
    with pytest.raises(ConfigError, match="Must set acks to all in order to use the idempotent producer"):
        config(acks="1", enable_idempotence="true")


@pytest.mark.behaviour("PROD-10")
@pytest.mark.java("KafkaProducerTest.RetriesAndIdempotenceForIdempotentProducers")
def test_idempotence_gives_way_to_no_retries_where_nobody_asked_for_it() -> None:
    off = config(retries="0", enable_idempotence="false")
    assert (off.enable_idempotence, off.retries) == (False, 0)
    gave_way = config(retries="0")
    assert (gave_way.enable_idempotence, gave_way.retries) == (False, 0)
    assert config(acks="all", retries=1).enable_idempotence
    wanted = "Must set retries to non-zero when using the idempotent producer."
    with pytest.raises(ConfigError, match=wanted):
        config(retries="0", enable_idempotence="true")


@pytest.mark.behaviour("PROD-10")
@pytest.mark.java(
    "KafkaProducerTest.InflightRequestsAndIdempotenceForIdempotentProducers",
    "ProducerConfigTest.UpperboundCheckOfEnableIdempotence",
)
@pytest.mark.parametrize("asked_for", [{}, {"enable.idempotence": "true"}])
def test_idempotence_allows_five_requests_in_flight_asked_for_or_not(asked_for: dict[str, str]) -> None:
    name = "max.in.flight.requests.per.connection"
    servers = {"bootstrap.servers": "localhost:9092"}
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({**servers, **asked_for, name: "6"})
    assert caught.value.message == (
        f"To use the idempotent producer, {name} must be set to at most 5. Current value is 6."
    )
    assert ProducerConfig.from_mapping({**servers, **asked_for, name: "5"}).enable_idempotence
    given = ProducerConfig.from_mapping({**servers, name: "6", "enable.idempotence": "false"})
    assert given.max_in_flight_requests_per_connection == 6


@pytest.mark.behaviour("PROD-11")
@pytest.mark.java("KafkaProducerTest.DeliveryTimeoutAndLingerMsConfig")
def test_a_delivery_timeout_that_was_asked_for_covers_linger_and_request() -> None:
    with pytest.raises(ConfigError) as caught:
        config(delivery_timeout_ms=1000, linger_ms=1000, request_timeout_ms=1)
    assert str(caught.value) == (
        "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"
    )
    KafkaProducer(config(delivery_timeout_ms=1000, linger_ms=999, request_timeout_ms=1)).close()


@pytest.mark.behaviour("PROD-11")
def test_a_delivery_timeout_that_nobody_asked_for_is_raised_to_the_sum() -> None:
    assert config(linger_ms=100_000, request_timeout_ms=30_000).delivery_timeout_ms == 130_000
    assert config(linger_ms=2**40, request_timeout_ms=30_000).delivery_timeout_ms == 2**31 - 1


def test_a_first_reconnect_backoff_alone_is_also_the_longest() -> None:
    assert config(reconnect_backoff_ms=2000).reconnect_backoff_max_ms == 2000
    assert config(reconnect_backoff_ms=20, reconnect_backoff_max_ms=80).reconnect_backoff_max_ms == 80


def test_a_client_id_that_was_given_is_kept_even_if_it_is_empty() -> None:
    assert config(client_id="").client_id == ""
    assert config(client_id="orders").client_id == "orders"


# -- remarks -------------------------------------------------------------------------------------------------


def test_what_a_user_should_know_is_said_by_the_producer_and_not_by_each_config(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    config(
        retries=0, reconnect_backoff_ms=2_000, linger_ms=2**40
    )  # as the sidecar does to check its settings
    given = config(retries=0, reconnect_backoff_ms=2_000, linger_ms=2**40)
    assert caplog.messages == []
    KafkaProducer(given).close()
    reported = [
        "Idempotence will be disabled because retries is set to 0.",
        "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms. "
        "Setting it to 2147483647.",
        "Disabling exponential reconnect backoff because reconnect.backoff.ms is set, "
        "but reconnect.backoff.max.ms is not.",
    ]
    assert [message for message in caplog.messages if message in reported] == reported
