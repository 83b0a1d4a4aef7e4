"""`?metadata.…` of a publish: what of it means something, and what can't be used."""

from __future__ import annotations

import re

import jsonschema_rs
import pytest

from service.dialects.dapr.publish_metadata import BOOLEANS, metadata_of_query, understand
from service.dialects.dapr.schemas import PUBLISH_REQUEST


def test_parameters_of_metadata_lose_their_prefix_and_others_are_refused() -> None:
    given = [("metadata.partitionKey", "k"), ("metadata.a.b", ""), ("metadata.ü", "ü")]
    assert metadata_of_query(given) == {"partitionKey": "k", "a.b": "", "ü": "ü"}
    for name in ("partitionKey", "metadata.", "Metadata.ttl", "metadata"):
        with pytest.raises(ValueError, match="unknown parameter"):
            metadata_of_query([(name, "1")])


def test_all_metadata_becomes_headers_as_in_dapr() -> None:
    metadata = {"partitionKey": "k", "rawPayload": "true", "correlationId": "ü"}
    asked = understand(metadata)
    assert asked.headers == (("partitionKey", b"k"), ("rawPayload", b"true"), ("correlationId", "ü".encode()))
    assert (asked.raw, asked.key, asked.partition, asked.ttl_ms) == (True, b"k", None, None)
    assert understand({}) == (False, None, None, None, {}, ())


@pytest.mark.parametrize("word", ["1", "t", "T", "TRUE", "true", "True"])
def test_true_is_what_go_calls_true(word: str) -> None:
    assert understand({"rawPayload": word}).raw


@pytest.mark.parametrize("word", ["0", "f", "F", "FALSE", "false", "False", ""])
def test_false_is_what_go_calls_false(word: str) -> None:
    assert not understand({"rawPayload": word}).raw


@pytest.mark.parametrize("word", ["100", "yes", "tRUE", " true", "1 "])
def test_anything_else_is_no_boolean(word: str) -> None:
    with pytest.raises(ValueError, match="rawPayload value must be a valid boolean"):
        understand({"rawPayload": word})


def test_either_name_of_the_key_is_taken_but_not_two_keys() -> None:
    assert understand({"__key": "k"}).key == b"k"
    assert understand({"__key": "k", "partitionKey": "k"}).key == b"k"
    assert understand({"partitionKey": ""}).key == b""
    with pytest.raises(ValueError, match="differ"):
        understand({"__key": "k", "partitionKey": "l"})


@pytest.mark.parametrize(("written", "partition"), [("0", 0), ("007", 7), ("2147483647", 2**31 - 1)])
def test_a_partition_can_be_named(written: str, partition: int) -> None:
    assert understand({"partitionNumber": written}).partition == partition


@pytest.mark.parametrize("written", ["", "-1", "+1", "1.0", "2147483648", "9" * 10_000, "²", "one"])
def test_what_is_no_partition_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="partitionNumber"):
        understand({"partitionNumber": written})


@pytest.mark.parametrize(
    ("written", "ttl_ms"),
    [
        ("1", 1_000),
        ("120", 120_000),
        ("9223372036854775807", (2**63 - 1) // 10**6),
        ("1h30m", 5_400_000),
        ("1.5s", 1_500),
        ("250ms", 250),
        ("1000us", 1),
        ("1000µs", 1),  # the micro sign
        ("1000\u03bcs", 1),  # the Greek letter
        ("999999999h", (2**63 - 1) // 10**6),
        ("-5s", 0),
        (".5s", 500),
    ],
)
def test_a_ttl_is_seconds_or_a_duration_of_gos(written: str, ttl_ms: int) -> None:
    for name in ("ttlInSeconds", "ttl", "TTLINSECONDS"):
        assert understand({name: written}).ttl_ms == ttl_ms


@pytest.mark.parametrize("written", ["0", "-1", "soon", "1 s", "1d", "5s more", "9" * 10_000, "1" * 99 + "x"])
def test_a_ttl_that_nobody_understands_is_refused_and_not_passed_over(written: str) -> None:
    with pytest.raises(ValueError, match="ttl must be"):
        understand({"ttlInSeconds": written})


def test_ttl_goes_before_ttl_in_seconds_and_an_empty_one_is_none() -> None:
    assert understand({"ttlInSeconds": "9", "ttl": "1s"}).ttl_ms == 1_000
    assert understand({"ttlInSeconds": ""}).ttl_ms is None


def test_overrides_are_found_whatever_their_case_and_empty_ones_are_none() -> None:
    metadata = {
        "cloudevent.Type": "t",
        "CloudEvent.id": "i",
        "cloudevent.topic": "x",
        "cloudevent.source": "",
    }
    assert understand(metadata).overrides == {"type": "t", "id": "i"}


def test_schemas_are_refused_with_a_way_round() -> None:
    for written in ("Avro", "avro", "JSON"):
        with pytest.raises(ValueError, match="rawPayload=true"):
            understand({"valueSchemaType": written})
    assert understand({"valueSchemaType": "None"})


@pytest.mark.parametrize(
    ("name", "written"),
    [
        *(("rawPayload", word) for word in (*BOOLEANS, "", "100", "yes", " true")),
        *(("partitionNumber", word) for word in ("0", "2147483647", "2147483648", "-1", "one")),
        *(
            ("ttlInSeconds", word)
            for word in ("", "1", "90", "1m30s", "-2h", ".5s", "0", "-1", "1.5", "s", "1d")
        ),
    ],
)
def test_the_document_allows_what_is_understood_and_nothing_else(name: str, written: str) -> None:
    parameters = PUBLISH_REQUEST["parameters"]
    schema = next(one["schema"] for one in parameters if one["name"] == f"metadata.{name}")
    validator = jsonschema_rs.validator_for(schema)
    is_number = re.fullmatch("-?[0-9]+", written) is not None
    allowed = validator.is_valid(written) or (is_number and validator.is_valid(int(written)))
    try:
        understand({name: written})
    except ValueError:
        assert not allowed
    else:
        assert allowed
