"""IdleExpiry: the least recently used connection, strictly older than the limit, one at a time (SEL-14)."""

from __future__ import annotations

from client_core.network.selector import IdleExpiry


def test_a_connection_expires_after_more_than_the_limit() -> None:
    idle = IdleExpiry(100, now_ms=0)
    idle.touch(1, 0)
    assert idle.expired(100) is None
    assert idle.expired(101) == 1


def test_activity_begins_the_time_anew() -> None:
    idle = IdleExpiry(100, now_ms=0)
    idle.touch(1, 0)
    idle.touch(1, 60)
    assert idle.expired(101) is None
    assert idle.expired(160) is None
    assert idle.expired(161) == 1


def test_the_least_recently_used_one_expires_first_and_one_at_a_time() -> None:
    idle = IdleExpiry(100, now_ms=0)
    idle.touch(1, 0)
    idle.touch(2, 0)
    idle.touch(1, 5)
    assert idle.expired(500) == 2
    idle.forget(2)
    assert idle.expired(500) == 1
    idle.forget(1)
    assert idle.expired(500) is None


def test_the_oldest_is_looked_at_no_earlier_than_it_can_have_expired() -> None:
    idle = IdleExpiry(100, now_ms=0)
    assert idle.expired(150) is None  # nobody is here: next look after 250
    idle.touch(1, 150)
    assert idle.expired(250) is None
    assert idle.expired(251) == 1


def test_forgetting_what_is_unknown_is_no_error() -> None:
    IdleExpiry(100, now_ms=0).forget(7)
