"""Generated code at work, on one message that has every shape the generator knows."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest

from client_core.errors import SchemaError, UnsupportedVersionError
from client_core.protocol.message_code import module_text
from client_core.protocol.schema import parse_definition

if TYPE_CHECKING:
    from collections.abc import Iterator

_ID: Final = {"name": "Id", "type": "int32", "versions": "0+"}
_DEFINITION: Final = {
    "apiKey": 3,
    "type": "response",
    "name": "PilotResponse",
    "validVersions": "0-3",
    "flexibleVersions": "2+",
    "fields": [
        {
            "name": "Nodes",
            "type": "[]Node",
            "versions": "0+",
            "nullableVersions": "1+",
            "fields": [_ID, {"name": "Rack", "type": "string", "versions": "1+", "nullableVersions": "1+"}],
        },
        {"name": "Replicas", "type": "[]int32", "versions": "1+", "ignorable": True},
        {"name": "Names", "type": "[]string", "versions": "1-2"},
        {"name": "Leader", "type": "Leader", "versions": "1+", "ignorable": True, "fields": [_ID]},
        {"name": "Spare", "type": "[]int64", "versions": "3+", "nullableVersions": "3+", "default": "null"},
        {
            "name": "Epoch",
            "type": "int64",
            "versions": "2+",
            "tag": 0,
            "taggedVersions": "2+",
            "default": "-1",
        },
        {"name": "Hints", "type": "[]int8", "versions": "3+", "tag": 1, "taggedVersions": "3+"},
        {
            "name": "Note",
            "type": "string",
            "versions": "3+",
            "nullableVersions": "3+",
            "tag": 2,
            "taggedVersions": "3+",
            "default": "null",
            "ignorable": True,
        },
    ],
}


@pytest.fixture
def pilot() -> Iterator[Any]:
    """The module that the generator makes of the definition."""
    module = ModuleType("generated_pilot_response")
    sys.modules[module.__name__] = module
    exec(module_text(parse_definition(json.dumps(_DEFINITION)), "0"), vars(module))
    yield module
    del sys.modules[module.__name__]


def _both_ways(message: Any, version: int, *parts: str) -> None:
    encoded = bytes.fromhex("".join(parts))
    assert message.encode(version).hex() == encoded.hex()
    assert message.decode(encoded, version) == message


def test_bytes_of_the_first_version(pilot: Any) -> None:
    message = pilot.PilotResponse(nodes=(pilot.Node(7), pilot.Node(8)))
    _both_ways(message, 0, "00000002", "00000007", "00000008")


def test_bytes_of_a_classic_version(pilot: Any) -> None:
    message = pilot.PilotResponse(
        (pilot.Node(7, "r"), pilot.Node(8, None)), (1, 2), ("a", ""), pilot.Leader(5)
    )
    _both_ways(
        message,
        1,
        "00000002",  # nodes
        "00000007" + "0001" + "72",
        "00000008" + "ffff",
        "00000002" + "00000001" + "00000002",  # replicas
        "00000002" + "0001" + "61" + "0000",  # names
        "00000005",  # leader
    )


def test_bytes_of_a_null_array(pilot: Any) -> None:
    _both_ways(pilot.PilotResponse(nodes=None), 1, "ffffffff", "00000000", "00000000", "00000000")


def test_bytes_of_a_flexible_version(pilot: Any) -> None:
    message = pilot.PilotResponse((pilot.Node(7, "r"),), (1,), ("a",), pilot.Leader(5), epoch=9)
    _both_ways(
        message,
        2,
        "02" + "00000007" + "02" + "72" + "00",  # one node and its tags
        "02" + "00000001",  # replicas
        "02" + "02" + "61",  # names
        "00000005" + "00",  # leader and its tags
        "01" + "00" + "08" + "0000000000000009",  # one tag: epoch
    )


def test_bytes_of_all_tagged_fields(pilot: Any) -> None:
    message = pilot.PilotResponse(nodes=None, spare=(3,), epoch=9, hints=(-1, 2), note="n")
    _both_ways(
        message,
        3,
        "00",  # nodes: null
        "01",  # replicas: none
        "00000000" + "00",  # leader
        "02" + "0000000000000003",  # spare
        "03",  # three tags
        "00" + "08" + "0000000000000009",  # epoch
        "01" + "03" + "03" + "ff" + "02",  # hints
        "02" + "02" + "02" + "6e",  # note
    )


def test_a_default_of_null_is_written_as_null_but_not_as_a_tag(pilot: Any) -> None:
    _both_ways(pilot.PilotResponse(), 3, "01", "01", "00000000" + "00", "00", "00")


@pytest.mark.parametrize("field", ["replicas", "note"])
def test_an_ignorable_field_is_dropped_where_there_is_no_room(pilot: Any, field: str) -> None:
    changed = pilot.PilotResponse(**{field: "x" if field == "note" else (1,)})
    assert changed.encode(0) == pilot.PilotResponse().encode(0)


@pytest.mark.parametrize(
    ("field", "value", "version"),
    [("names", ("a",), 3), ("names", ("a",), 0), ("spare", (), 2), ("epoch", 0, 1), ("hints", (1,), 2)],
)
def test_any_other_field_is_refused_where_there_is_no_room(
    pilot: Any, field: str, value: object, version: int
) -> None:
    with pytest.raises(
        UnsupportedVersionError, match=f"PilotResponse v{version} can't carry {field}, which is set"
    ):
        pilot.PilotResponse(**{field: value}).encode(version)


def test_a_field_of_a_part_is_refused_where_there_is_no_room(pilot: Any) -> None:
    with pytest.raises(UnsupportedVersionError, match="PilotResponse v0 can't carry rack, which is set"):
        pilot.PilotResponse(nodes=(pilot.Node(7, "r"),)).encode(0)


def test_null_is_refused_by_a_version_that_wants_a_value(pilot: Any) -> None:
    with pytest.raises(UnsupportedVersionError, match="PilotResponse v0 can't carry nodes without a value"):
        pilot.PilotResponse(nodes=None).encode(0)


def test_null_is_refused_from_a_version_that_has_a_value(pilot: Any) -> None:
    with pytest.raises(SchemaError, match="PilotResponse v0: a null array where none is allowed"):
        pilot.PilotResponse.decode(bytes.fromhex("ffffffff"), 0)


def test_elements_are_weighed_by_their_smallest_size_in_any_version(pilot: Any) -> None:
    """A node takes four bytes in version 0, more in later ones: three don't fit in eleven bytes."""
    with pytest.raises(SchemaError, match="an array of 3 elements does not fit in the 11 bytes left"):
        pilot.PilotResponse.decode(bytes.fromhex("00000003") + bytes(11), 0)
