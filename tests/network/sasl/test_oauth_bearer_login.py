"""The thread that keeps a token at hand. After OAuthBearerLoginModuleTest, RetryTest (Kafka 4.3), by a clock
that a test turns.
"""

from __future__ import annotations

import queue
import random
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import DisconnectError, SaslAuthenticationError
from client_core.events import SecretReloaded
from client_core.network.sasl.client_jwt_validator import ClientJwtValidator
from client_core.network.sasl.oauth_bearer_login import OAuthBearerLogin
from client_core.network.security_config import OAuthBearerConfig
from tests.network.sasl.jwts import jwt_of
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from client_core.events import Event
    from client_core.network.sasl.client_jwt_validator import OAuthBearerToken

URL_SETTING: Final = "sasl.oauthbearer.token.endpoint.url"
MINUTE_MS: Final = 60_000
CONFIG: Final = OAuthBearerConfig(
    "https://idp/token",
    retry_backoff_ms=100,
    retry_backoff_max_ms=10_000,
    refresh_window_factor=0.8,
    refresh_window_jitter=0.0,
)


ASKS: Final = "asks"
WAITS: Final = "waits"


class SteppingClock(MockClock):
    """Tells when the thread begins to wait, and for how long."""

    def __init__(self, steps: queue.Queue[str]) -> None:
        super().__init__()
        self.waits_ms: list[int] = []
        self.slept_ms = 0  # while the machine sleeps, only the calendar goes on
        self._steps = steps

    def wall_ms(self) -> int:
        return super().wall_ms() + self.slept_ms

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
    ) -> bool:
        self.waits_ms.append(deadline_ms - self.now_ms())
        self._steps.put(WAITS)
        return super().wait_for(condition, predicate, deadline_ms)


class FakeRetriever:
    """Gives what a test puts in; a question waits for it."""

    shown = "https://idp/token"

    def __init__(self, steps: queue.Queue[str]) -> None:
        self.answers: queue.Queue[str | Exception] = queue.Queue()
        self.is_cancelled = False
        self._steps = steps

    def retrieve(self) -> str:
        self._steps.put(ASKS)
        answer = self.answers.get(timeout=patient(30))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self) -> None:
        self.is_cancelled = True
        self.answers.put(DisconnectError("the client is closing"))


class Rig:
    """A login by a clock that stands still; the test goes along with its thread, step by step."""

    def __init__(self, events: RecordedEvents | None = None) -> None:
        self._steps: queue.Queue[str] = queue.Queue()
        self.clock = SteppingClock(self._steps)
        self.retriever = FakeRetriever(self._steps)
        self.events = RecordedEvents() if events is None else events
        self.login = OAuthBearerLogin(
            CONFIG, self.retriever, ClientJwtValidator(), self.clock, random.Random(1), self.events
        )
        self.first_token = self.login.token()  # who asks first starts the thread

    def valid_token(self) -> OAuthBearerToken:
        token = self.login.token()
        assert token is not None
        return token

    def token(self, subject: str, lives_ms: int) -> str:
        """Somebody's token that lives so long from now on."""
        wall_ms = self.clock.wall_ms()
        return jwt_of(subject, expires_ms=wall_ms + lives_ms, issued_ms=wall_ms)

    def step(self) -> str:
        """What the thread does next; waits for it."""
        return self._steps.get(timeout=patient(30))

    def answer(self, answer: str | Exception) -> int:
        """Answers the thread's question; returns for how many milliseconds it waits then."""
        assert self.step() == ASKS
        self.retriever.answers.put(answer)
        assert self.step() == WAITS
        return self.clock.waits_ms[-1]


@contextmanager
def rig(events: RecordedEvents | None = None) -> Iterator[Rig]:
    made = Rig(events)
    try:
        yield made
    finally:
        made.login.close()


def test_there_is_no_token_before_the_first_answer_and_nobody_waits_for_it() -> None:
    with rig() as it:
        assert it.first_token is None
        assert it.login.token() is None
        assert it.login.principal_name is None
        it.answer(it.token("alice", 100 * MINUTE_MS))
        assert it.valid_token().principal_name == it.login.principal_name == "alice"


def test_the_thread_begins_when_a_token_is_first_asked_for() -> None:
    steps: queue.Queue[str] = queue.Queue()
    retriever, events = FakeRetriever(steps), RecordedEvents()
    login = OAuthBearerLogin(
        CONFIG, retriever, ClientJwtValidator(), SteppingClock(steps), random.Random(1), events
    )
    assert not login._thread.is_alive()
    assert login.token() is None
    assert steps.get(timeout=patient(30)) == ASKS
    login.close()
    assert not login._thread.is_alive()


def test_close_of_one_that_was_never_asked_leaves_no_thread_and_none_begins_later() -> None:
    steps: queue.Queue[str] = queue.Queue()
    login = OAuthBearerLogin(
        CONFIG,
        FakeRetriever(steps),
        ClientJwtValidator(),
        SteppingClock(steps),
        random.Random(1),
        RecordedEvents(),
    )
    login.close()
    with pytest.raises(DisconnectError, match="the client is closing"):
        login.token()
    assert login._thread.ident is None


def test_a_token_that_expired_unnoticed_is_waited_for() -> None:
    """The machine slept: the thread has not looked at the calendar yet."""
    with rig() as it:
        it.answer(it.token("alice", 100 * MINUTE_MS))
        it.clock.slept_ms = 100 * MINUTE_MS
        assert it.login.token() is None
        it.answer(it.token("bob", 100 * MINUTE_MS))
        assert it.valid_token().principal_name == "bob"


def test_a_token_is_refreshed_after_four_fifths_of_its_life() -> None:
    with rig() as it:
        assert it.answer(it.token("first", 100 * MINUTE_MS)) == MINUTE_MS  # then it looks at the calendar
        it.clock.advance(80 * MINUTE_MS - 1)
        assert it.step() == WAITS
        assert it.clock.waits_ms[-1] == 1
        it.clock.advance(1)
        assert it.valid_token().principal_name == "first"
        it.answer(it.token("second", 100 * MINUTE_MS))
        assert it.valid_token().principal_name == "second"
        assert it.events.of(SecretReloaded) == [SecretReloaded(URL_SETTING, None)] * 2


def test_the_token_is_kept_while_its_refresh_fails_and_it_is_valid() -> None:
    with rig() as it:
        it.answer(it.token("alice", 100 * MINUTE_MS))
        it.clock.advance(80 * MINUTE_MS)
        it.answer(SaslAuthenticationError("answered 401"))
        assert it.valid_token().principal_name == "alice"
        it.clock.advance(20 * MINUTE_MS)
        with pytest.raises(SaslAuthenticationError, match="there is no OAUTHBEARER token: answered 401"):
            it.login.token()
        it.answer(it.token("bob", 100 * MINUTE_MS))
        assert it.valid_token().principal_name == "bob"
        assert it.events.of(SecretReloaded) == [
            SecretReloaded(URL_SETTING, None),
            SecretReloaded(URL_SETTING, "answered 401"),
            SecretReloaded(URL_SETTING, None),
        ]


def test_temporary_trouble_backs_off_from_the_least_to_the_most() -> None:
    with rig() as it:
        waits_ms = []
        for _ in range(12):
            waits_ms.append(it.answer(DisconnectError("connection refused")))
            with pytest.raises(DisconnectError, match="there is no OAUTHBEARER token: connection refused"):
                it.login.token()
            it.clock.advance(waits_ms[-1])
        assert 80 <= waits_ms[0] <= 120
        assert 160 <= waits_ms[1] <= 240
        assert 8_000 <= waits_ms[-1] <= 10_000
        assert max(waits_ms) <= 10_000
        assert len(it.events.of(SecretReloaded)) == 1
        it.answer(it.token("alice", 100 * MINUTE_MS))
        it.clock.advance(80 * MINUTE_MS)
        assert 80 <= it.answer(DisconnectError("connection refused")) <= 120


def test_a_refusal_is_asked_again_after_the_longest_backoff() -> None:
    with rig() as it:
        assert it.answer(SaslAuthenticationError("answered 401")) == 10_000
        with pytest.raises(SaslAuthenticationError):
            it.login.token()
        it.clock.advance(10_000)
        assert it.step() == ASKS


def test_each_who_asks_gets_an_error_of_his_own() -> None:
    with rig() as it:
        it.answer(SaslAuthenticationError("answered 401"))
        errors = []
        for _ in range(2):
            with pytest.raises(SaslAuthenticationError) as caught:
                it.login.token()
            errors.append(caught.value)
        assert errors[0] is not errors[1]


@pytest.mark.parametrize("nonsense", ["hunter2", "a.b.c"])
def test_a_token_that_is_none_is_a_refusal_that_does_not_show_it(nonsense: str) -> None:
    with rig() as it:
        it.answer(nonsense)
        with pytest.raises(
            SaslAuthenticationError, match="https://idp/token gave no usable token: "
        ) as caught:
            it.login.token()
        assert nonsense not in str(caught.value)


def test_a_token_from_the_past_hints_at_the_clocks() -> None:
    with rig() as it:
        it.answer(it.token("alice", -60_000))
        with pytest.raises(SaslAuthenticationError, match="expired 60 s ago; do the clocks agree"):
            it.login.token()


def test_a_bug_does_not_end_the_thread() -> None:
    with rig() as it:
        it.answer(KeyError("hunter2"))
        with pytest.raises(SaslAuthenticationError, match="https://idp/token can't be asked: KeyError"):
            it.login.token()
        it.clock.advance(10_000)
        it.answer(it.token("alice", 100 * MINUTE_MS))
        assert it.valid_token().principal_name == "alice"


class BrokenSink(RecordedEvents):
    """A user's sink with a bug."""

    def emit(self, event: Event, /) -> None:
        raise RuntimeError("a bug")


def test_a_sink_with_a_bug_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    with rig(BrokenSink()) as it:
        it.answer(it.token("alice", 100 * MINUTE_MS))
        it.clock.advance(80 * MINUTE_MS)
        it.answer(DisconnectError("not now"))
        it.clock.advance(10_000)
        it.answer(it.token("bob", 100 * MINUTE_MS))
        assert it.valid_token().principal_name == "bob"
    assert "An event sink failed" in caplog.text


def test_close_ends_a_thread_that_waits(caplog: pytest.LogCaptureFixture) -> None:
    it = Rig()
    it.answer(it.token("alice", 100 * MINUTE_MS))
    it.login.close()
    it.login.close()
    assert not _login_threads(it)
    assert caplog.messages == []


def test_close_ends_a_thread_that_asks() -> None:
    it = Rig()
    assert it.step() == ASKS
    it.login.close()
    assert it.retriever.is_cancelled
    assert not _login_threads(it)
    assert it.events.events == []


def _login_threads(it: Rig) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread is it.login._thread]


def test_repr_shows_the_address_only() -> None:
    with rig() as it:
        it.answer(it.token("alice", MINUTE_MS))
        assert repr(it.login) == "<OAuthBearerLogin https://idp/token>"
