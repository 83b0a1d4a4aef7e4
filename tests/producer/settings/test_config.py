"""ProducerConfig: Kafka's table of settings, the rules between them, and what is refused.

Twins of ProducerConfigTest and of KafkaProducerTest's cases on settings, Kafka 4.3.
"""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, Final

import pytest

from client_core.errors import ConfigError
from client_core.network.secret import HIDDEN
from client_core.network.security_config import SecurityProtocol
from client_core.producer.kafka_producer import KafkaProducer
from client_core.producer.settings.config import DEFAULT_CLIENT_ID, ProducerConfig
from client_core.producer.settings.config_def import (
    ANY_LIST,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    STRING,
    URL,
    Option,
    between,
    between_or,
)
from client_core.producer.settings.config_options import OPTIONS, PRODUCER_OPTIONS
from client_core.producer.settings.config_refusals import UNSUPPORTED, UNSUPPORTED_FAMILIES, refusal

_GOLDEN: Final = Path(__file__).parents[2] / "golden" / "data" / "tables" / "producer_config_defaults.json"


SERVERS: Final = {"bootstrap.servers": "localhost:9092"}


def config(**settings: object) -> ProducerConfig:
    """A config from names with underscores for dots, which keyword arguments can hold."""
    return ProducerConfig.from_mapping(SERVERS | {n.replace("_", "."): v for n, v in settings.items()})


def refused(settings: dict[str, object]) -> ConfigError | None:
    """The error about these settings; None if they are accepted."""
    try:
        ProducerConfig.from_mapping(SERVERS | settings)
    except ConfigError as error:
        return error
    return None


def table_of_kafka() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(_GOLDEN.read_text())}


def in_kafkas_spelling(option: Option[Any]) -> dict[str, str | None]:
    """An option as the golden table has it."""
    default = option.default if option.kafka_default is None else option.kafka_default
    if option.required:
        default = "<required>"
    elif default in (None, "none") and option.name != "compression.type":
        default = "null"
    elif option.kind.name == "CLASS":
        default = f"class {default}"
    elif option.kind.name == "LIST" and default is not None:
        default = f"[{default.replace(',', ', ')}]"
    valid = None if option.valid is None else option.valid.text
    return {"type": option.kind.name, "default": default, "valid": valid}


# -- the table -----------------------------------------------------------------------------------------------


def test_honoured_options_have_kafkas_types_defaults_and_valid_values() -> None:
    kafkas = table_of_kafka()
    columns = ("type", "default", "valid")
    assert {option.name: in_kafkas_spelling(option) for option in OPTIONS if not option.is_ours} == {
        option.name: {column: kafkas[option.name][column] for column in columns}
        for option in OPTIONS
        if option.name in kafkas
    }


def test_defaults_that_are_not_kafkas_are_these() -> None:
    # Readers must know them: the docs show both.
    ours = {o.name: (o.default, o.kafka_default) for o in OPTIONS if o.kafka_default is not None}
    assert ours == {
        "ssl.truststore.type": ("PEM", "JKS"),
        "ssl.keystore.type": ("PEM", "JKS"),
        "sasl.mechanism": (None, "GSSAPI"),
        "sasl.login.connect.timeout.ms": ("10000", "none"),
        "sasl.login.read.timeout.ms": ("10000", "none"),
    }


def test_options_that_kafka_does_not_have_are_these() -> None:
    ours = {option.name: in_kafkas_spelling(option) for option in OPTIONS if option.is_ours}
    assert {name: (row["type"], row["default"], row["valid"]) for name, row in ours.items()} == {
        "allowed.broker.hosts": ("LIST", "[]", ""),
        "idempotence.restart.enable": ("BOOLEAN", "false", None),
        "exit.flush.timeout.ms": ("LONG", "5000", "[0,...]"),
        "partitioner.lost.leader.probe.interval.ms": ("LONG", "0", "[0,...]"),
        "submit.batch.size": ("INT", "0", "[0,...]"),
        "sasl.username": ("STRING", "null", None),
        "sasl.password": ("PASSWORD", "null", None),
        "sasl.oauthbearer.token.provider": ("STRING", "null", None),
    }


def test_every_default_is_valid() -> None:
    assert [o.name for o in OPTIONS if o.default and o.read(o.default) is None] == []


def test_every_password_may_come_from_a_file() -> None:
    secrets = {option.name for option in OPTIONS if option.kind.name == "PASSWORD"}
    may_be_files = {option.name for option in OPTIONS if option.may_be_file}
    assert may_be_files - secrets == {"sasl.username", "sasl.oauthbearer.client.credentials.client.id"}
    assert secrets <= may_be_files


def test_refused_settings_are_all_kafkas() -> None:
    kafkas = set(table_of_kafka())
    assert set(UNSUPPORTED) <= kafkas
    for family in UNSUPPORTED_FAMILIES:
        assert any(name.startswith(family) for name in kafkas)


def test_every_setting_of_kafka_is_honoured_or_refused_as_known() -> None:
    refusals = {name: refusal(name) for name in table_of_kafka()}
    honoured = {name for name, error in refusals.items() if error is None}
    assert honoured == {option.name for option in OPTIONS} & refusals.keys()
    assert [one for one in refusals.values() if one and "is not a setting of" in one.message] == []


def test_honoured_options_are_explained_in_a_sentence() -> None:
    assert [o.name for o in OPTIONS if not o.doc.endswith(".") or len(o.doc) > 110] == []


@pytest.mark.java("ProducerConfigTest.DefaultMetadataRecoveryStrategy")
def test_an_empty_config_but_for_the_addresses_is_kafkas() -> None:
    defaults = config()
    assert (defaults.linger_ms, defaults.acks, defaults.enable_idempotence) == (5, "all", True)
    assert (defaults.delivery_timeout_ms, defaults.max_block_ms) == (120_000, 60_000)
    assert (defaults.retries, defaults.client_id) == (2**31 - 1, DEFAULT_CLIENT_ID)
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


REFUSED_VALUES: Final[list[tuple[str, object, str]]] = [
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
    ("compression.type", "abc", "String must be one of: none, gzip, snappy, lz4, zstd"),
    ("security.protocol", "abc", "String must be one of (case insensitive): SASL_SSL, PLAINTEXT,"),
    ("metadata.recovery.strategy", "abc", "String must be one of (case insensitive): REBOOTSTRAP, NONE"),
    ("metadata.max.idle.ms", "4999", "Value must be at least 5000"),
    ("send.buffer.bytes", "-2", "Value must be at least -1"),
    ("receive.buffer.bytes", "-2", "Value must be at least -1"),
    ("bootstrap.servers", "", "Configuration 'bootstrap.servers' must not be empty."),
    ("bootstrap.servers", "a:1,", "Configuration 'bootstrap.servers' values must not be empty."),
    ("bootstrap.servers", 7, "Expected a comma separated list."),
]


@pytest.mark.java(
    "ProducerConfigTest.InvalidCompressionType",
    "ProducerConfigTest.InvalidSecurityProtocol",
    "ProducerConfigTest.InvalidMetadataRecoveryStrategy",
    "KafkaProducerTest.InvalidSocketSendBufferSize",
    "KafkaProducerTest.InvalidSocketReceiveBufferSize",
)
def test_a_value_of_the_wrong_type_or_out_of_range_is_refused_in_kafkas_words() -> None:
    for name, value, message in REFUSED_VALUES:
        error = refused({name: value})
        assert error is not None, (name, value)
        assert (error.name, message in error.message) == (name, True), (value, error.message)


def test_addresses_are_required() -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({})
    said = 'Missing required configuration "bootstrap.servers" which has no default value.'
    assert str(caught.value) == said


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


def test_values_that_mean_another() -> None:
    assert config(connections_max_idle_ms="-1").connections_max_idle_ms is None, "connections are never idle"
    assert config(batch_size=0).batch_size == 1, "batches of one record"
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


# -- refusals ------------------------------------------------------------------------------------------------


REFUSED_NAMES: Final = {
    "linger.sm": "linger.sm is not a setting of Kafka's producer; did you mean linger.ms?",
    "linger_ms": "linger_ms is not a setting of Kafka's producer; did you mean linger.ms?",
    "retry_backoff_x_ms": (
        "retry_backoff_x_ms is not a setting of Kafka's producer; did you mean retry.backoff.max.ms?"
    ),
    "Batch.Size": "Batch.Size is not a setting of Kafka's producer; did you mean batch.size?",
    "message.max.bytes.of.cake": "message.max.bytes.of.cake is not a setting of Kafka's producer",
    "transactional.id": "transactional.id is about transactions, which this client does not offer",
    "key.serializer": (
        "key.serializer names a Java class, which this client can't load; keys and values are bytes "
        "here, and the library takes a callable as key_serializer and value_serializer of KafkaProducer"
    ),
    "linger.ms.file": "linger.ms.file is not supported: linger.ms is not a secret; give its value directly",
}

LIBRDKAFKAS_NAMES: Final = {
    "compression.codec": "compression.type",
    "message.max.bytes": "max.request.size",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain.file",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key.file",
    "ssl.key.pem": "ssl.keystore.key",
}


def test_a_name_that_is_not_honoured_is_refused_with_its_reason() -> None:
    expected = REFUSED_NAMES | {
        name: f"{name} is librdkafka's name; Kafka's is {kafkas}"
        for name, kafkas in LIBRDKAFKAS_NAMES.items()
    }
    errors = [refused({name: "s3cret"}) for name in expected]
    assert {error.name: str(error) for error in errors if error is not None} == expected


#: Settings that only Java or a broker supports, and the replacement.
REMEDIES: Final = {
    "ssl.truststore.password": "this client reads PEM stores, which have none",
    "ssl.keystore.password": "ssl.key.password is for an encrypted private key",
    "ssl.engine.factory.class": "names a Java class",
    "ssl.provider": "this client uses OpenSSL",
    "sasl.kerberos.service.name": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER are",
    "sasl.login.callback.handler.class": "sasl.oauthbearer.token.provider takes a Python callable",
    "sasl.oauthbearer.jwks.endpoint.url": "is for brokers",
    "sasl.oauthbearer.jwt.validator.class": "names a Java class",
}


def test_settings_that_only_java_or_a_broker_supports_are_refused_with_a_replacement() -> None:
    for name, remedy in REMEDIES.items():
        error = refusal(name)
        assert error is not None, name
        assert (error.message.startswith(f"{name} "), remedy in error.message) == (True, True), error


def test_the_repr_names_every_setting_and_its_value() -> None:
    shown = repr(config(bootstrap_servers="a:1,b:2"))
    assert shown.startswith("<ProducerConfig bootstrap.servers=a:1,b:2 client.id=producer-1 ")
    assert all(f" {option.name}=" in shown for option in PRODUCER_OPTIONS)
    assert shown.endswith(" security.protocol=PLAINTEXT>")


def test_the_repr_shows_what_is_in_force_and_not_only_what_was_given() -> None:
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
def test_idempotence_gives_way_to_fewer_acks_unless_it_was_set() -> None:
    for acks in ("0", "all"):
        off = config(acks=acks, enable_idempotence="false")
        assert (off.enable_idempotence, off.acks) == (False, acks)
    for acks in ("0", "1"):
        gave_way = config(acks=acks)
        assert (gave_way.enable_idempotence, gave_way.acks) == (False, acks)
    with pytest.raises(ConfigError, match="Must set acks to all in order to use the idempotent producer"):
        config(acks="1", enable_idempotence="true")


@pytest.mark.behaviour("PROD-10")
@pytest.mark.java("KafkaProducerTest.RetriesAndIdempotenceForIdempotentProducers")
def test_idempotence_gives_way_to_no_retries_unless_it_was_set() -> None:
    for off in (config(retries="0", enable_idempotence="false"), config(retries="0")):
        assert (off.enable_idempotence, off.retries) == (False, 0)
    assert config(acks="all", retries=1).enable_idempotence
    wanted = "Must set retries to non-zero when using the idempotent producer."
    with pytest.raises(ConfigError, match=wanted):
        config(retries="0", enable_idempotence="true")


@pytest.mark.behaviour("PROD-10")
@pytest.mark.java(
    "KafkaProducerTest.InflightRequestsAndIdempotenceForIdempotentProducers",
    "ProducerConfigTest.UpperboundCheckOfEnableIdempotence",
)
def test_idempotence_allows_five_requests_in_flight_asked_for_or_not() -> None:
    name = "max.in.flight.requests.per.connection"
    for asked_for in ({}, {"enable.idempotence": "true"}):
        error = refused({**asked_for, name: "6"})
        assert error is not None
        assert error.message == (
            f"To use the idempotent producer, {name} must be set to at most 5. Current value is 6."
        )
        assert ProducerConfig.from_mapping({**SERVERS, **asked_for, name: "5"}).enable_idempotence
    given = ProducerConfig.from_mapping({**SERVERS, name: "6", "enable.idempotence": "false"})
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
def test_a_default_delivery_timeout_is_raised_to_the_sum() -> None:
    assert config(linger_ms=100_000, request_timeout_ms=30_000).delivery_timeout_ms == 130_000
    assert config(linger_ms=2**40, request_timeout_ms=30_000).delivery_timeout_ms == 2**31 - 1


@pytest.mark.java("CommonClientConfigsTest.ExponentialBackoffDefaults")
def test_a_first_reconnect_backoff_alone_is_also_the_longest() -> None:
    assert (config().reconnect_backoff_ms, config().reconnect_backoff_max_ms) == (50, 1_000)
    assert config(reconnect_backoff_ms=2000).reconnect_backoff_max_ms == 2000
    assert config(reconnect_backoff_ms=20, reconnect_backoff_max_ms=80).reconnect_backoff_max_ms == 80


def test_a_client_id_that_was_given_is_kept_even_if_it_is_empty() -> None:
    assert [config(client_id=given).client_id for given in ("", "orders")] == ["", "orders"]


def test_a_client_id_that_no_request_can_hold_is_refused() -> None:
    assert config(client_id="é" * 16_383).client_id == "é" * 16_383
    with pytest.raises(ConfigError, match=r"client\.id is longer than 32767 bytes"):
        config(client_id="é" * 16_384)
    with pytest.raises(ConfigError, match=r"client\.id is not valid Unicode"):
        config(client_id="\udce9")


# -- remarks -------------------------------------------------------------------------------------------------


def test_notices_for_users_are_logged_by_the_producer_and_not_by_each_config(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    # The first as the sidecar does to check its settings.
    _, given = [config(retries=0, reconnect_backoff_ms=2_000, linger_ms=2**40) for _ in range(2)]
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


# -- types, ranges and lists ---------------------------------------------------------------------------------


def test_a_range_has_an_upper_end_and_one_value_may_lie_beside_it() -> None:
    option = Option("n", INT, None, between(1, 9), "A number.")
    assert option.read("9") == 9
    with pytest.raises(
        ConfigError, match="Invalid value 10 for configuration n: Value must be no more than 9"
    ):
        option.read("10")
    beside = Option("n", INT, None, between_or(1, 9, -1), "A number.")
    assert beside.valid is not None
    assert beside.valid.text == "[1,...,9] or -1"
    assert [beside.read(text) for text in ("-1", "1", "9")] == [-1, 1, 9]
    with pytest.raises(ConfigError, match="Value must be between 1 and 9 or equal to -1"):
        beside.read("0")


def test_fractions_are_read_from_text_and_from_numbers() -> None:
    option = Option("x", DOUBLE, None, between(0.5, 1.0), "A fraction.")
    assert [option.read(value) for value in (" 0.75 ", "5e-1", 1, 0.5)] == [0.75, 0.5, 1.0, 0.5]


def test_a_list_may_be_empty_but_not_have_empty_entries_and_double_ones_count_once() -> None:
    option = Option("names", LIST, "", ANY_LIST, "Names.")
    assert [option.read(text) for text in ("", "a, b")] == [(), ("a", "b")]
    assert [option.read(value) for value in ("b,a, b,c,a", ["b", "a", "b", "c"])] == [("b", "a", "c")] * 2
    for text in ("a,,b", ",", "a,"):
        with pytest.raises(ConfigError, match="Configuration 'names' values must not be empty"):
            option.read(text)


def test_a_broker_that_is_given_twice_counts_once() -> None:
    config = ProducerConfig.from_mapping({"bootstrap.servers": "a:1, b:2,a:1"})
    assert config.bootstrap_servers == ("a:1", "b:2")


def test_a_secret_is_never_shown() -> None:
    option = Option("ssl.key.password", PASSWORD, None, None, "A secret.")
    assert option.show("s3cret") == HIDDEN
    with pytest.raises(ConfigError) as caught:
        option.read(31337)
    assert "31337" not in caught.value.message


def test_a_text_is_trimmed_as_java_trims_it() -> None:
    """trim() removes spaces and control characters, no other kind of space: a password may end with one."""
    option = Option("ssl.key.password", PASSWORD, None, None, "A secret.")
    assert [option.read(text) for text in (" s3cret\r\n", "\u3000s3cret\u00a0 ")] == [
        "s3cret",
        "\u3000s3cret\u00a0",
    ]
    with pytest.raises(ConfigError, match="Not a number of type INT"):
        Option("n", INT, None, None, "A number.").read("5\u00a0")


def test_only_what_may_be_a_file_has_a_companion() -> None:
    secret = Option("sasl.password", PASSWORD, None, None, "", may_be_file=True)
    assert secret.file_name == "sasl.password.file"
    assert Option("client.id", STRING, "", None, "").file_name is None


def test_a_number_of_any_length_is_refused_by_its_name() -> None:
    """Python refuses to read text of thousands of digits, and to make a float of the like."""
    for value in ("9" * 5_000, "-" + "9" * 5_000, 10**400, -(10**400)):
        for kind in (INT, LONG):
            with pytest.raises(ConfigError, match="for configuration n: Not a number of type"):
                Option("n", kind, None, None, "A number.").read(value)
        with pytest.raises(ConfigError, match="for configuration x: "):
            Option("x", DOUBLE, None, between(0.5, 1.0), "A fraction.").read(value)


def test_zeros_in_front_do_not_make_a_number_too_long() -> None:
    assert Option("n", INT, None, None, "A number.").read("-" + "0" * 5_000 + "7") == -7


def test_a_url_that_is_none_or_holds_a_password_is_refused_without_being_shown() -> None:
    for url in ("https://[::1", "https://me:s3cret@idp.example/token"):
        with pytest.raises(ConfigError, match="for configuration u: ") as caught:
            Option("u", URL, None, None, "An address.").read(url)
        assert url not in str(caught.value)
        assert "s3cret" not in str(caught.value)
