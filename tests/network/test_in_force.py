"""What is made of texts that change: the last good one counts, and what won't do is told once."""

from __future__ import annotations

import pytest

from client_core.errors import ConfigError
from client_core.events import SecretReloaded
from client_core.network.secret import InForce
from tests.support.recorded_events import RecordedEvents


class Given:
    """A text that a test changes, and how often something was made of it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.made = 0

    def read(self) -> str:
        return self.text

    def make(self, text: str) -> int:
        self.made += 1
        if not text.isdigit():
            raise ConfigError(f"a.number: {text} is none", name="a.number")
        return int(text)


def test_it_is_made_anew_when_the_text_changed_and_only_then() -> None:
    given = Given("1")
    number = InForce(given.read, given.make, RecordedEvents())
    assert (number.now(), number.now(), given.made) == (1, 1, 1)
    given.text = "2"
    assert (number.now(), number.now(), given.made) == (2, 2, 2)


def test_what_will_not_do_is_told_once_and_the_last_good_one_stays() -> None:
    given, events = Given("1"), RecordedEvents()
    number = InForce(given.read, given.make, events)
    given.text = "one"
    assert (number.now(), number.now(), given.made) == (1, 1, 2)
    assert events.events == [SecretReloaded("a.number", "a.number: one is none")]
    given.text = "1"
    assert (number.now(), given.made) == (1, 2)


def test_a_fault_that_comes_back_after_a_good_one_is_told_again() -> None:
    given, events = Given("1"), RecordedEvents()
    number = InForce(given.read, given.make, events)
    for text in ("one", "2", "one"):
        given.text = text
        number.now()
    assert number.now() == 2
    assert len(events.events) == 2


def test_without_a_first_one_there_is_none() -> None:
    given = Given("one")
    with pytest.raises(ConfigError, match=r"a\.number: one is none"):
        InForce(given.read, given.make, RecordedEvents())
