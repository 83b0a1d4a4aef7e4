"""The room in which requests wait: what fits, what is counted for how long, and when to come back."""

from __future__ import annotations

import pytest

from service.admission.admission_control import AdmissionControl
from service.wire.errors import ProblemError
from tests.support.mock_clock import MockClock


def test_the_room_turns_away_what_does_not_fit() -> None:
    room = AdmissionControl(MockClock(), max_requests=2, max_bytes=100)
    room.enter(60)
    with pytest.raises(ProblemError, match="60 bytes are waiting"):
        room.enter(41)
    room.enter(40)
    with pytest.raises(ProblemError, match="2 requests are waiting"):
        room.enter(0)


def test_a_body_larger_than_the_room_fits_into_an_empty_one() -> None:
    room = AdmissionControl(MockClock(), max_requests=2, max_bytes=100)
    place = room.enter(500)
    place.leave()
    assert (room.requests, room.bytes) == (0, 0)


def test_a_place_grows_with_what_is_read() -> None:
    room = AdmissionControl(MockClock(), max_requests=9, max_bytes=100)
    place, other = room.enter(0), room.enter(50)
    place.grow_to(30)
    place.grow_to(20)
    assert room.bytes == 80
    with pytest.raises(ProblemError):
        place.grow_to(51)
    place.leave()
    other.leave()
    assert (room.requests, room.bytes) == (0, 0)


def test_bytes_that_were_handed_on_count_until_they_are_settled() -> None:
    for settles_first in (True, False):
        room = AdmissionControl(MockClock(), max_requests=9, max_bytes=100)
        place = room.enter(60)
        place.hand_on()
        if settles_first:
            place.settled()
            assert (room.requests, room.bytes) == (1, 0), settles_first
            place.leave()
        else:
            place.leave()
            assert (room.requests, room.bytes) == (0, 60), settles_first
            place.settled()
        assert (room.requests, room.bytes) == (0, 0), settles_first


def test_a_body_that_is_too_large_for_the_room_fits_alone_be_its_length_known_or_not() -> None:
    room = AdmissionControl(MockClock(), max_requests=9, max_bytes=100)
    room.enter(150).leave()
    with room.enter(0) as place:
        place.grow_to(60)
        place.grow_to(150)
        with pytest.raises(ProblemError):
            room.enter(1)
    with room.enter(60), room.enter(0) as place, pytest.raises(ProblemError):
        place.grow_to(50)
    assert room.bytes == 0


def retry_after(room: AdmissionControl, body_bytes: int) -> int:
    with pytest.raises(ProblemError) as refused:
        room.enter(body_bytes)
    return int(dict(refused.value.problem.headers)[b"retry-after"])


def test_retry_after_comes_from_how_fast_the_room_empties() -> None:
    clock = MockClock(now_ms=500)
    room = AdmissionControl(clock, max_requests=99, max_bytes=1_000)
    for _ in range(2):
        room.enter(100).leave()
    room.enter(1_000)
    for advance_ms, after_s in [(400, 3), (1_000, 3), (3_100, 30)]:
        clock.advance(advance_ms)
        assert retry_after(room, 600) == after_s
