"""The tests' own reader of event streams does what the standard says (WHATWG HTML, 9.2.6)."""

from __future__ import annotations

import pytest

from tests.support.event_stream import EventReader, ServerSentEvent


@pytest.mark.parametrize("chunk", [1, 3, 1_000])
def test_events_are_read_however_they_are_cut(chunk: int) -> None:
    stream = (
        b'retry: 2000\n\nevent: a\nid: x-1\ndata: {"n":\ndata: 1}\n\n: still here\n\nevent: b\ndata: 2\n\n'
    )
    reader = EventReader()
    events = [e for at in range(0, len(stream), chunk) for e in reader.feed(stream[at : at + chunk])]
    assert events == [ServerSentEvent("a", '{"n":\n1}', "x-1"), ServerSentEvent("b", "2", "x-1")]
    assert events[0].data == {"n": 1}
    assert (reader.retry_ms, reader.comments) == (2_000, 1)


def test_an_event_without_data_or_without_an_end_is_none() -> None:
    assert EventReader().feed(b"event: a\n\nevent: b\ndata: 1\n") == []


def test_a_field_that_is_none_of_an_event_stream_is_a_fault_of_the_server() -> None:
    with pytest.raises(AssertionError, match="no field"):
        EventReader().feed(b"evnet: a\n")
