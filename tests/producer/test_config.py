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
from client_core.producer.config import DEFAULT_CLIENT_ID, ProducerConfig
from client_core.producer.config_options import (
    OPTIONS,
    PASSWORD,
    Kind,
    Option,
    between,
)
from client_core.producer.config_refusals import refusal

_GOLDEN: Final = Path(__file__).parents[1] / "golden" / "data" / "tables" / "producer_config_defaults.json"


def config(**settings: object) -> ProducerConfig:
    """A config from names with underscores for dots, which keyword arguments can hold."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9092", **named})


def table_of_kafka() -> dict[str, dict[str, Any]]:
    rows = json.loads(_GOLDEN.read_text())
    return {row["name"]: row for row in rows}


# -- the table -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: str(option.name))
def test_an_honoured_option_has_kafkas_type_default_and_valid_values(option: Option[object]) -> None:
    row = table_of_kafka()[option.name]
    assert option.kind.name == row["type"]
    assert (option.default if option.default is not None else "<required>") == row["default"]
    assert (option.valid.text if option.valid is not None else None) == row["valid"]


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
        ("compression.type", "abc", "String must be one of: none, gzip, snappy, lz4, zstd"),
        ("security.protocol", "abc", "String must be one of (case insensitive): SASL_SSL, PLAINTEXT,"),
        ("metadata.recovery.strategy", "abc", "String must be one of (case insensitive): REBOOTSTRAP, NONE"),
        ("metadata.max.idle.ms", "4999", "Value must be at least 5000"),
        ("send.buffer.bytes", "-2", "Value must be at least -1"),  # testInvalidSocketSendBufferSize
        ("receive.buffer.bytes", "-2", "Value must be at least -1"),  # testInvalidSocketReceiveBufferSize
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


def test_between_has_an_upper_end() -> None:
    option = Option("n", Kind("INT", lambda name, value: int(str(value))), None, between(1, 9), "A number.")
    assert option.read("9") == 9
    with pytest.raises(
        ConfigError, match="Invalid value 10 for configuration n: Value must be no more than 9"
    ):
        option.read("10")


def test_addresses_are_required() -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({})
    assert str(caught.value) == (
        'Missing required configuration "bootstrap.servers" which has no default value.'
    )


def test_minus_one_leaves_the_socket_buffers_to_the_system() -> None:
    sizes = config(send_buffer_bytes="-1", receive_buffer_bytes="-1")
    assert (sizes.send_buffer_bytes, sizes.receive_buffer_bytes) == (None, None)


def test_a_negative_idle_time_means_connections_are_never_idle() -> None:
    assert config(connections_max_idle_ms="-1").connections_max_idle_ms is None


def test_a_batch_size_of_zero_means_batches_of_one_record() -> None:
    assert config(batch_size=0).batch_size == 1


def test_minus_one_is_another_word_for_all_acks() -> None:
    assert config(acks="-1") == config(acks="all")


def test_words_may_come_in_any_case_where_kafka_says_so() -> None:
    given = config(security_protocol="plaintext", metadata_recovery_strategy="NoNe")
    assert given.security_protocol == "PLAINTEXT"
    assert given.metadata_recovery_strategy == "none"


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("linger.sm", "linger.sm is not a setting of Kafka's producer; did you mean linger.ms?"),
        ("linger_ms", "linger_ms is not a setting of Kafka's producer; did you mean linger.ms?"),
        ("Batch.Size", "Batch.Size is not a setting of Kafka's producer; did you mean batch.size?"),
        ("message.max.bytes.of.cake", "message.max.bytes.of.cake is not a setting of Kafka's producer"),
        ("transactional.id", "transactional.id is about transactions, which this client does not offer"),
        ("key.serializer", "key.serializer is not needed: keys and values are bytes here"),
        ("ssl.key.password", "ssl.key.password is a setting of Kafka's producer that is not supported yet"),
        ("sasl.mechanism", "sasl.mechanism is a setting of Kafka's producer that is not supported yet"),
    ],
)
def test_a_name_that_is_not_honoured_is_refused_with_its_reason(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9092", name: "s3cret"})
    assert str(caught.value) == message
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("compression.type", "zstd", "none"),
        ("security.protocol", "SASL_SSL", "PLAINTEXT"),
        ("security.protocol", "ssl", "PLAINTEXT"),
    ],
)
def test_what_is_not_supported_yet_is_refused_clearly(name: str, value: str, kept: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9092", name: value})
    assert str(caught.value) == f"{name}={value} is not supported yet; leave it at {kept}"


def test_a_secret_is_never_shown() -> None:
    option = Option("ssl.key.password", PASSWORD, None, None, "A secret.")
    assert option.show("s3cret") == HIDDEN
    with pytest.raises(ConfigError) as caught:
        option.read(5)
    assert "5" not in caught.value.message


def test_the_repr_names_every_setting_and_its_value() -> None:
    shown = repr(config(bootstrap_servers="a:1,b:2"))
    assert shown.startswith("<ProducerConfig bootstrap.servers=a:1,b:2 client.id=producer-1 ")
    assert all(f" {option.name}=" in shown for option in OPTIONS)


# -- rules between settings ----------------------------------------------------------------------------------


def test_idempotence_gives_way_to_weaker_settings_where_nobody_asked_for_it() -> None:
    assert not config(retries=0).enable_idempotence
    assert not config(acks="1").enable_idempotence
    assert not config(acks="0").enable_idempotence
    assert config(acks="all", retries=1).enable_idempotence


def test_idempotence_that_was_asked_for_needs_retries() -> None:
    with pytest.raises(ConfigError, match="Must set retries to non-zero when"):
        config(enable_idempotence=True, retries=0)


def test_idempotence_that_was_asked_for_needs_all_acks() -> None:
    with pytest.raises(ConfigError, match="Must set acks to all in order to use"):
        config(enable_idempotence=True, acks="1")


def test_idempotence_allows_five_requests_in_flight_asked_for_or_not() -> None:
    wanted = (
        "To use the idempotent producer, max.in.flight.requests.per.connection must be set to at most 5. "
    )
    six = {"max.in.flight.requests.per.connection": 6, "bootstrap.servers": "localhost:9092"}
    with pytest.raises(ConfigError, match=wanted + "Current value is 6."):
        ProducerConfig.from_mapping(six)
    given = ProducerConfig.from_mapping({**six, "enable.idempotence": "false"})
    assert given.max_in_flight_requests_per_connection == 6


def test_a_delivery_timeout_that_was_asked_for_covers_linger_and_request() -> None:
    with pytest.raises(ConfigError) as caught:
        config(delivery_timeout_ms=1000, linger_ms=1000, request_timeout_ms=1)
    assert str(caught.value) == (
        "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"
    )
    assert config(delivery_timeout_ms=1001, linger_ms=1000, request_timeout_ms=1).delivery_timeout_ms == 1001


def test_a_delivery_timeout_that_nobody_asked_for_is_raised_to_the_sum() -> None:
    assert config(linger_ms=100_000, request_timeout_ms=30_000).delivery_timeout_ms == 130_000
    assert config(linger_ms=2**40, request_timeout_ms=30_000).delivery_timeout_ms == 2**31 - 1


def test_a_first_reconnect_backoff_alone_is_also_the_longest() -> None:
    assert config(reconnect_backoff_ms=2000).reconnect_backoff_max_ms == 2000
    assert config(reconnect_backoff_ms=20, reconnect_backoff_max_ms=80).reconnect_backoff_max_ms == 80


def test_a_client_id_that_was_given_is_kept_even_if_it_is_empty() -> None:
    assert config(client_id="").client_id == ""
    assert config(client_id="orders").client_id == "orders"
