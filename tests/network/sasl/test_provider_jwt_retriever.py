"""Tokens from a callable of the application: what it may return, and what is made of everything else."""

from __future__ import annotations

import logging
import random
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import ConfigError, DisconnectError, SaslAuthenticationError
from client_core.events import SecretReloaded
from client_core.network.sasl.client_jwt_validator import ClientJwtValidator, OAuthBearerToken
from client_core.network.sasl.oauth_bearer_login import OAuthBearerLogin
from client_core.network.sasl.provider_jwt_retriever import ProviderJwtRetriever
from client_core.network.security_config import OAuthBearerConfig, TokenProvider
from tests.network.sasl.jwts import jwt_of
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTING: Final = "sasl.oauthbearer.token.provider"
#: In no message, whatever happens.
SECRET: Final = "snark-hunt-6Pw"
#: 2026, on the wall clock.
EXPIRES_MS: Final = 1_780_000_000_000


def retriever(function: Callable[[], object]) -> ProviderJwtRetriever:
    return ProviderJwtRetriever(TokenProvider("app.tokens:get", function))


# -- what it returns -----------------------------------------------------------------------------------------


def test_a_jwt_is_passed_on_as_it_is() -> None:
    token = jwt_of("alice", expires_ms=EXPIRES_MS)
    assert retriever(lambda: token).retrieve() == token


@pytest.mark.parametrize(
    ("returned", "principal"),
    [
        (("opaque~token", EXPIRES_MS), "app.tokens:get"),
        ([" opaque~token\n", EXPIRES_MS + 0.9, None], "app.tokens:get"),
        (("opaque~token", EXPIRES_MS, " role/billing "), "role/billing"),
    ],
)
def test_any_other_token_has_its_expiry_beside_it_and_perhaps_a_principal(
    returned: object, principal: str
) -> None:
    expected = OAuthBearerToken("opaque~token", frozenset(), EXPIRES_MS, principal, None)
    assert retriever(lambda: returned).retrieve() == expected


async def _async() -> str:
    return SECRET


REFUSED: Final[dict[str, tuple[Callable[[], object], str]]] = {
    "empty": (lambda: "", "an empty token"),
    "blank": (lambda: " \n", "an empty token"),
    "an empty one with a time": (lambda: (" ", EXPIRES_MS), "an empty token"),
    "None": (lambda: None, "a NoneType; it must return a JWT, or (token, expires_at_ms) or"),
    "bytes": (SECRET.encode, "a bytes; it must return"),
    "a coroutine": (_async, "a coroutine; it must return"),
    "one": (lambda: (SECRET,), "a tuple; it must return"),
    "four": (lambda: (SECRET, EXPIRES_MS, "me", "more"), "a tuple; it must return"),
    "a dictionary": (lambda: {"token": SECRET}, "a dict; it must return"),
    "bytes with a time": (lambda: (SECRET.encode(), EXPIRES_MS), "a bytes as token; it must"),
    "a line end": (lambda: (f"a\n{SECRET}", EXPIRES_MS), "a token with characters that SASL can't carry"),
    "a separator": (lambda: (f"a\1{SECRET}", EXPIRES_MS), "a token with characters that SASL can't carry"),
    "no ASCII": (lambda: (f"é{SECRET}", EXPIRES_MS), "a token with characters that SASL can't carry"),
    "seconds": (lambda: (SECRET, EXPIRES_MS // 1000), "is it in seconds?"),
    "never": (lambda: (SECRET, float("inf")), "no time in milliseconds"),
    "not a number": (lambda: (SECRET, float("nan")), "no time in milliseconds"),
    "too late for Java": (lambda: (SECRET, 2**63), "no time in milliseconds"),
    "a text for a time": (lambda: (SECRET, str(EXPIRES_MS)), "a str as expires_at_ms"),
    "a truth for a time": (lambda: (SECRET, True), "a bool as expires_at_ms"),
    "an empty principal": (lambda: (SECRET, EXPIRES_MS, " "), "a principal that is no text, or empty"),
    "a number as principal": (lambda: (SECRET, EXPIRES_MS, 7), "a principal that is no text, or empty"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_everything_else_is_refused_by_name_and_not_shown(case: str) -> None:
    function, said = REFUSED[case]
    with pytest.raises(SaslAuthenticationError) as caught:
        retriever(function).retrieve()
    assert caught.value.message.startswith(f"{SETTING} app.tokens:get returned ")
    assert said in caught.value.message
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("error", [ValueError(SECRET), SystemExit(SECRET), KeyboardInterrupt(SECRET)])
def test_an_exception_is_temporary_trouble_and_only_its_type_is_named(error: BaseException) -> None:
    def fails() -> str:
        raise error

    with pytest.raises(DisconnectError) as caught:
        retriever(fails).retrieve()
    assert caught.value.message == f"{SETTING} app.tokens:get raised {type(error).__name__}"
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_after_cancel_it_is_not_called_and_what_it_returns_is_not_used() -> None:
    calls: list[str] = []

    def closes_meanwhile() -> str:
        calls.append("called")
        asked.cancel()
        return SECRET

    asked = retriever(closes_meanwhile)
    for _ in range(2):
        with pytest.raises(DisconnectError, match="the client is closing"):
            asked.retrieve()
    assert calls == ["called"]


# -- where it is ---------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module of a package; returns its name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    numbers = iter(range(100))

    def write(text: str) -> str:
        package = f"tokens_of_a_test_{next(numbers)}"
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "kafka.py").write_text(text)
        for name in (package, f"{package}.kafka"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        return f"{package}.kafka"

    return write


def test_a_callable_is_found_at_its_place(module: Callable[[str], str]) -> None:
    name = module("class Source:\n    @staticmethod\n    def token(): return ('a', 1_780_000_000_000)\n")
    token = ProviderJwtRetriever(TokenProvider(f"{name}:Source.token")).retrieve()
    assert isinstance(token, OAuthBearerToken)
    assert (token.value, token.principal_name) == ("a", f"{name}:Source.token")


@pytest.mark.parametrize(
    ("text", "attribute", "said"),
    [
        ("", "token", "has no token; name one that is there"),
        ("token = None", "token", "has no token; name one that is there"),
        ("class A: pass", "A.token", "has no A.token; name one that is there"),
        ("token = 'hunter2'", "token", "token is a str; name a callable"),
        ("async def token(): pass", "token", "token is async; name a plain function, which may block"),
        ("import not_there_at_all", "token", "needs the module not_there_at_all, which is not installed"),
        ("raise RuntimeError('hunter2')", "token", "can't be imported (RuntimeError); python -c 'import "),
        ("def token(:", "token", "can't be imported (SyntaxError); python -c 'import "),
    ],
)
def test_without_a_callable_there_it_is_a_config_error_that_names_what_is_missing(
    module: Callable[[str], str], text: str, attribute: str, said: str
) -> None:
    place = f"{module(text)}:{attribute}"
    with pytest.raises(ConfigError) as caught:
        ProviderJwtRetriever(TokenProvider(place))
    assert caught.value.name == SETTING
    assert caught.value.message.startswith(f"{SETTING}={place}: ")
    assert said in caught.value.message
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("place", ["not_there_at_all:token", "not_there_at_all.kafka:token"])
def test_a_module_that_is_not_there_is_a_config_error_with_the_remedy(place: str) -> None:
    with pytest.raises(ConfigError, match=r"no module not_there_at_all; install it, or .*PYTHONPATH"):
        ProviderJwtRetriever(TokenProvider(place))


# -- how it is shown -----------------------------------------------------------------------------------------


class _Callable:
    """One without a name of its own."""

    def __call__(self) -> str:
        return SECRET

    def method(self) -> str:
        return SECRET

    def __repr__(self) -> str:
        return SECRET


def test_a_callable_is_shown_by_its_place_only() -> None:
    here = __name__
    for function, place in (
        (_Callable(), f"{here}:_Callable"),
        (_Callable().method, f"{here}:_Callable.method"),
        (partial(str, SECRET), "functools:partial"),
    ):
        provider = TokenProvider.of(function)
        assert repr(provider) == str(provider) == place
        shown = ProviderJwtRetriever(provider)
        assert (repr(shown), shown.shown) == (f"<ProviderJwtRetriever {place}>", f"{SETTING} {place}")


# -- on the login's thread -----------------------------------------------------------------------------------


class Turns:
    """A callable that waits in each call until the test has said what it does."""

    def __init__(self) -> None:
        self.called = threading.Semaphore(0)
        self._go_on = threading.Semaphore(0)
        self._next: Callable[[], object] = str

    def __call__(self) -> object:
        self.called.release()
        assert self._go_on.acquire(timeout=patient(30))
        return self._next()

    def go_on(self, does: Callable[[], object]) -> None:
        assert self.called.acquire(timeout=patient(30))
        self._next = does
        self._go_on.release()


class WaitingClock(MockClock):
    """Keeps how long the thread waits, and reports each wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_ms: list[int] = []
        self.waits = threading.Semaphore(0)

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
    ) -> bool:
        self.waits_ms.append(deadline_ms - self.now_ms())
        self.waits.release()
        return super().wait_for(condition, predicate, deadline_ms)


class Login:
    """A login by a callable."""

    def __init__(self) -> None:
        self.clock, self.turns, self.events = WaitingClock(), Turns(), RecordedEvents()
        config = OAuthBearerConfig(retry_backoff_ms=100, retry_backoff_max_ms=10_000)
        self.login = OAuthBearerLogin(
            config,
            retriever(self.turns),
            ClientJwtValidator(),
            self.clock,
            random.Random(1),
            self.events,
            close_timeout_s=0.0,
        )
        assert self.login.token() is None

    def turn(self, does: Callable[[], object]) -> int:
        """One call that does so; how long the thread waits then."""
        self.turns.go_on(does)
        assert self.clock.waits.acquire(timeout=patient(30))
        return self.clock.waits_ms[-1]


def _raises() -> object:
    raise RuntimeError(SECRET)


@pytest.mark.behaviour("CRED-01")
def test_exceptions_back_off_to_the_longest_pause_and_a_token_ends_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    it = Login()
    waits_ms = []
    for _ in range(9):
        waits_ms.append(it.turn(_raises))
        with pytest.raises(DisconnectError, match=r"no OAUTHBEARER token: .* app.tokens:get raised RuntimeE"):
            it.login.token()
        it.clock.advance(waits_ms[-1])
    assert 80 <= waits_ms[0] <= 120
    assert 8_000 <= waits_ms[-1] <= 10_000
    assert waits_ms == sorted(waits_ms[:8]) + waits_ms[8:]
    expires_ms = it.clock.wall_ms() + 600_000
    it.turn(lambda: ("opaque", expires_ms))
    token = it.login.token()
    assert token is not None
    assert (token.value, token.lifetime_ms) == ("opaque", expires_ms)
    it.login.close()
    failure = f"{SETTING} app.tokens:get raised RuntimeError"
    assert it.events.of(SecretReloaded) == [SecretReloaded(SETTING, failure), SecretReloaded(SETTING, None)]
    assert SECRET not in caplog.text


def test_a_token_that_has_expired_is_refused_until_there_is_another() -> None:
    it = Login()
    assert it.turn(lambda: ("opaque", it.clock.wall_ms() - 60_000)) == 10_000
    with pytest.raises(SaslAuthenticationError, match="expired 60 s ago; do the clocks agree"):
        it.login.token()
    it.login.close()


@pytest.mark.behaviour("CRED-01")
def test_one_that_hangs_keeps_nobody_waiting_and_close_does_not_wait_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = Login()
    assert it.turns.called.acquire(timeout=patient(30))
    assert it.login.token() is None
    it.login.close()
    said = f"still asking {SETTING} app.tokens:get for a token; the thread ends afterwards"
    assert caplog.messages == [said]
    it.turns.called.release()
    it.turns.go_on(lambda: ("late", EXPIRES_MS * 2))
    it.login._thread.join(patient(30))
    assert not it.login._thread.is_alive()
    assert it.login.principal_name is None
    assert it.events.events == []
