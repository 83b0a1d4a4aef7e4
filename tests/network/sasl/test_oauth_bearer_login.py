"""Tokens: their claims, from a file, from a thread that keeps one ready, and when to renew them.

After ClientJwtValidatorTest, ClaimValidationUtilsTest, OAuthBearerLoginModuleTest, RetryTest and
ExpiringCredentialRefreshingLoginTest (Kafka 4.3), with a mock clock.
"""

from __future__ import annotations

import queue
import random
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import ConfigError, DisconnectError, SaslAuthenticationError
from client_core.events import SecretReloaded
from client_core.network.sasl.client_jwt_validator import ClientJwtValidator, OAuthBearerToken
from client_core.network.sasl.file_login import FileLogin
from client_core.network.sasl.oauth_bearer_login import ExpiringCredentialRefresh, OAuthBearerLogin
from client_core.network.security_config import OAuthBearerConfig
from tests.network.sasl.jwts import base64url, jwt, jwt_of
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents
from tests.support.waiting import patient

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from client_core.events import Event

CLAIMS = {"sub": "alice", "exp": 1_700_000_300, "iat": 1_700_000_000, "scope": "kafka"}


def complaint(token: str) -> str:
    with pytest.raises(SaslAuthenticationError) as caught:
        ClientJwtValidator().validate(token)
    assert token not in caught.value.message or not token
    assert caught.value.__cause__ is None
    return caught.value.message


def test_a_token_with_its_claims() -> None:
    text = jwt(CLAIMS)
    token = ClientJwtValidator().validate(f"  {text}\n")
    assert token.value == text
    assert token.principal_name == "alice"
    assert token.lifetime_ms == 1_700_000_300_000
    assert token.start_time_ms == 1_700_000_000_000
    assert token.scopes == {"kafka"}
    assert token.is_valid_at(1_700_000_299_999)
    assert not token.is_valid_at(1_700_000_300_000)
    assert repr(token) == "<OAuthBearerToken valid until 1700000300000>"


def test_claims_may_have_other_names_and_a_scope_may_be_missing() -> None:
    text = jwt({"upn": "alice", "exp": 1.5, "scp": ["a", " b "]})
    token = ClientJwtValidator("scp", "upn").validate(text)
    assert (token.principal_name, token.scopes) == ("alice", frozenset({"a", "b"}))
    assert (token.lifetime_ms, token.start_time_ms) == (1_000, None)
    assert ClientJwtValidator().validate(jwt({"sub": "alice", "exp": 1})).scopes == frozenset()


def test_what_is_no_token_is_refused_with_what_is_wrong() -> None:
    header, payload, signature = jwt(CLAIMS).split(".")
    malformed, invalid = "Malformed JWT provided; ", "Could not validate the access token: "
    sections = f"{malformed}expected three sections (header, payload, and signature)"
    said = dict.fromkeys(["", "  ", "a.b", "a.b.c.d", "a..c", ".b.", "a. .c", "hunter2"], sections)
    for character in ("\x01", " ", "\r\n", "é", ","):  # it would end its field
        token = f"{header}.{payload}.{signature[:3]}{character}{signature[3:]}"
        said[token] = f"{malformed}it has invalid characters"
    for body in ("a+b/", "abcde"):
        said[f"e30.{body}.c2ln"] = f"{invalid}malformed Base64 URL encoded value"
    for claims in (b"{", b"\xff\xfe\xfd", b'{"exp": NaN}', b'{"exp": Infinity}', b"[" * 100_000):
        said[f"e30.{base64url(claims)}.c2ln"] = f"{invalid}malformed JSON"
    said[f"e30.{base64url(b'[1]')}.c2ln"] = f"{invalid}its claims are not a JSON object"
    # One of 4,300 digits is read, and a thousandfold it can't be spelled, not even in an error.
    for number in (b"1e999", b"9" * 4_300, b"-" + b"9" * 4_299, b"9223372036854776"):
        beyond = base64url(b'{"sub":"a","exp":%s}' % number)
        said[f"e30.{beyond}.c2ln"] = "exp value must be a number of seconds"
    assert {token: complaint(token) for token in said} == said


def test_a_claim_that_makes_no_sense_is_named() -> None:
    for name, value, said in (
        ("exp", None, "exp value must be non-null"),
        ("exp", -1, 'exp value must be non-negative; value given was "-1000"'),
        ("exp", "tomorrow", "exp value must be a number of seconds"),
        ("exp", True, "exp value must be a number of seconds"),
        ("iat", -1, 'iat value must be null or non-negative; value given was "-1000"'),
        ("iat", "now", "iat value must be a number of seconds"),
        ("sub", None, "sub value must be non-null"),
        ("sub", "", "sub value must be non-empty"),
        ("sub", "  ", "sub value must not contain only whitespace"),
        ("sub", 7, "sub value must be text"),
        ("scope", "", "scope value must be non-empty"),
        ("scope", ["a", "  "], "scope value must not contain only whitespace"),
        ("scope", ["a", "b", " a"], "scope value must not contain duplicates"),
        ("scope", ["a", None], "scope value must be non-null"),
    ):
        changed = {claim: given for claim, given in {**CLAIMS, name: value}.items() if given is not None}
        assert complaint(jwt(changed)) == said


@given(st.text(max_size=60))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    with suppress(SaslAuthenticationError):
        ClientJwtValidator().validate(text)


@given(st.binary(max_size=60))
def test_any_payload_is_taken_or_refused(payload: bytes) -> None:
    with suppress(SaslAuthenticationError):
        ClientJwtValidator().validate(f"e30.{base64url(payload)}.c2ln")


# -- a token in a file ---------------------------------------------------------------------------------------


URL_SETTING = "sasl.oauthbearer.token.endpoint.url"


def token(clock: MockClock, subject: str, lives_ms: int = 600_000) -> str:
    return jwt_of(subject, expires_ms=clock.wall_ms() + lives_ms)


def login(file: Path, clock: MockClock, events: RecordedEvents | None = None) -> FileLogin:
    return FileLogin(file.as_uri(), ClientJwtValidator(), clock, events or RecordedEvents())


def test_the_file_is_read_again_once_it_has_changed_and_an_expired_token_is_a_refusal(tmp_path: Path) -> None:
    clock, file = MockClock(), tmp_path / "a token"
    file.write_text(token(clock, "first") + "\n")
    source = login(file, clock)
    assert repr(source) == f"<FileLogin {file}>"
    assert source.token() is source.token()
    assert source.token().principal_name == "first"
    file.write_text(token(clock, "the second"))
    assert source.token().principal_name == "the second"
    clock.advance(599_999)
    assert source.token().principal_name == "the second"
    clock.advance(7_001)
    with pytest.raises(SaslAuthenticationError) as caught:
        source.token()
    assert str(caught.value) == (
        f"the token in {file} expired 7 s ago; renew the file, and check that the clocks agree"
    )
    file.write_text(token(clock, "alice again"))
    assert source.token().principal_name == "alice again"
    source.close()


def test_an_invalid_token_leaves_the_last_one_in_force_and_is_reported_once(tmp_path: Path) -> None:
    clock, file, events = MockClock(), tmp_path / "token", RecordedEvents()
    file.write_text(token(clock, "alice"))
    source = login(file, clock, events)
    file.write_text("hunter2")
    for _ in range(2):
        assert source.token().principal_name == "alice"
    file.unlink()
    assert source.token().principal_name == "alice"
    failures = [event.failure for event in events.of(SecretReloaded)]
    assert failures[0] is None  # the file was read
    assert failures[1] == (
        f"{URL_SETTING}: {file} has no usable token: Malformed JWT provided; expected"
        " three sections (header, payload, and signature)"
    )
    assert "hunter2" not in str(failures)
    assert len(failures) == 3
    clock.advance(600_000)
    with pytest.raises(SaslAuthenticationError):
        source.token()


def test_a_file_without_a_token_and_an_address_without_an_absolute_path_are_config_errors(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match="can't read"):
        login(file, MockClock())
    file.write_text("hunter2")
    with pytest.raises(ConfigError, match="has no usable token") as caught:
        login(file, MockClock())
    assert caught.value.name == URL_SETTING
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    for url in ("file://host/token", "file:token", "file://"):
        with pytest.raises(ConfigError, match="must be file:// and an absolute path"):
            FileLogin(url, ClientJwtValidator(), MockClock(), RecordedEvents())


# -- when a token is fetched again ---------------------------------------------------------------------------


NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def token_for_refresh(*, lives_ms: int, began_ms_ago: int | None = 0) -> OAuthBearerToken:
    """A token that lives so long from now on."""
    start_ms = None if began_ms_ago is None else NOW_MS - began_ms_ago
    return OAuthBearerToken("a.b.c", frozenset(), NOW_MS + lives_ms, "alice", start_ms)


def refresh(
    *,
    factor: float = 0.8,
    jitter: float = 0.0,
    min_period_ms: int = MINUTE_MS,
    buffer_ms: int = 5 * MINUTE_MS,
) -> ExpiringCredentialRefresh:
    return ExpiringCredentialRefresh(factor, jitter, min_period_ms, buffer_ms, random.Random(1))


def test_when_a_token_is_fetched_again() -> None:
    def after_minutes(lives: int, began_ago: int | None = 0, factor: float = 0.8) -> float:
        """Minutes from now on, of a token that lives so many and began so long ago."""
        began_ms_ago = None if began_ago is None else began_ago * MINUTE_MS
        token = token_for_refresh(lives_ms=lives * MINUTE_MS, began_ms_ago=began_ms_ago)
        return (refresh(factor=factor).refresh_ms(token, NOW_MS) - NOW_MS) / MINUTE_MS

    assert after_minutes(100) == 80, "after a part of its life"
    assert after_minutes(50, began_ago=50) == 30, "counted from when it was issued"
    assert after_minutes(50, began_ago=None) == 40, "or from now if it does not say"
    assert after_minutes(100, factor=0.99) == 95, "not within the buffer before its end"
    assert after_minutes(10, began_ago=90) == 1, "not before the min period is over"
    assert after_minutes(5, began_ago=95) == 4, "a life too short for both is divided alone"
    for lives_ms in (10, -10):  # about to end: not asked for ever faster
        assert refresh().refresh_ms(token_for_refresh(lives_ms=lives_ms), NOW_MS) == NOW_MS + 1000


@given(
    lives_ms=st.integers(1_000, 10_000 * MINUTE_MS),
    began_ms_ago=st.none() | st.integers(0, 10_000 * MINUTE_MS),
    jitter=st.floats(0, 0.25),
)
def test_always_in_time(lives_ms: int, began_ms_ago: int | None, jitter: float) -> None:
    policy = refresh(factor=0.5, jitter=jitter)
    at_ms = policy.refresh_ms(token_for_refresh(lives_ms=lives_ms, began_ms_ago=began_ms_ago), NOW_MS)
    assert NOW_MS + 1000 <= at_ms <= max(NOW_MS + lives_ms, NOW_MS + 1000)


def test_jitter_spreads_the_refreshes_of_many_clients() -> None:
    for seed in range(20):
        policy = ExpiringCredentialRefresh(0.8, 0.05, 0, 0, random.Random(seed))
        at_ms = policy.refresh_ms(token_for_refresh(lives_ms=100 * MINUTE_MS), NOW_MS)
        assert 80 * MINUTE_MS <= at_ms - NOW_MS <= 85 * MINUTE_MS, seed


# -- the thread that keeps a token at hand -------------------------------------------------------------------


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
    """Reports when the thread begins to wait, and for how long."""

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
    """Returns what a test puts in; a call waits for it."""

    setting = URL_SETTING
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
    """A login with a mock clock; the test steps its thread."""

    def __init__(
        self,
        events: RecordedEvents | None = None,
        *,
        asks: bool = True,
        config: OAuthBearerConfig = CONFIG,
    ) -> None:
        self._steps: queue.Queue[str] = queue.Queue()
        self.clock = SteppingClock(self._steps)
        self.retriever = FakeRetriever(self._steps)
        self.events = RecordedEvents() if events is None else events
        self.login = OAuthBearerLogin(
            config, self.retriever, ClientJwtValidator(), self.clock, random.Random(1), self.events
        )
        self.first_token = self.login.token() if asks else None  # who asks first starts the thread

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
        """Answers the thread's call; returns for how many milliseconds the thread waits then."""
        assert self.step() == ASKS
        self.retriever.answers.put(answer)
        assert self.step() == WAITS
        return self.clock.waits_ms[-1]


@contextmanager
def rig(events: RecordedEvents | None = None, config: OAuthBearerConfig = CONFIG) -> Iterator[Rig]:
    made = Rig(events, config=config)
    try:
        yield made
    finally:
        made.login.close()


def test_there_is_no_token_before_the_first_answer_nor_after_it_expired_and_no_call_waits() -> None:
    with rig() as it:
        assert (it.first_token, it.login.token(), it.login.principal_name) == (None, None, None)
        it.answer(it.token("alice", 100 * MINUTE_MS))
        assert it.valid_token().principal_name == it.login.principal_name == "alice"
        it.clock.slept_ms = 100 * MINUTE_MS  # the machine: the thread has not looked at the calendar yet
        assert it.login.token() is None
        it.answer(it.token("bob", 100 * MINUTE_MS))
        assert it.valid_token().principal_name == "bob"


def test_the_thread_begins_when_a_token_is_first_asked_for_and_close_ends_it_while_it_asks() -> None:
    it = Rig(asks=False)
    assert not it.login._thread.is_alive()
    assert it.login._thread.daemon  # a process that ends does not wait for it
    assert it.login.token() is None
    assert it.step() == ASKS
    it.login.close()
    assert it.retriever.is_cancelled
    assert not it.login._thread.is_alive()
    assert it.events.events == []


def test_close_of_one_that_was_never_asked_leaves_no_thread_and_none_begins_later() -> None:
    it = Rig(asks=False)
    it.login.close()
    with pytest.raises(DisconnectError, match="the client is closing"):
        it.login.token()
    assert it.login._thread.ident is None


def test_close_ends_a_thread_that_waits(caplog: pytest.LogCaptureFixture) -> None:
    it = Rig()
    it.answer(it.token("alice", 100 * MINUTE_MS))
    it.login.close()
    it.login.close()
    assert not it.login._thread.is_alive()
    assert caplog.messages == []


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
        it.clock.slept_ms = 100 * MINUTE_MS
        assert it.login.token() is None, "that failure is over, and another token is fetched"


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


def test_nothing_is_asked_without_a_pause_even_if_the_settings_say_so() -> None:
    none = replace(CONFIG, retry_backoff_ms=0, retry_backoff_max_ms=0)
    for config in (none, replace(none, retry_backoff_max_ms=10_000)):
        for error in (DisconnectError("connection refused"), SaslAuthenticationError("answered 401")):
            with rig(config=config) as it:
                assert it.answer(error) > 0


def test_a_refusal_is_tried_again_after_the_longest_backoff_and_each_caller_gets_its_own_error() -> None:
    with rig() as it:
        assert it.answer(SaslAuthenticationError("answered 401")) == 10_000
        errors = []
        for _ in range(2):
            with pytest.raises(SaslAuthenticationError) as caught:
                it.login.token()
            errors.append(caught.value)
        assert errors[0] is not errors[1]
        it.clock.advance(10_000)
        assert it.step() == ASKS


def test_a_token_that_is_none_is_a_refusal_that_does_not_show_it_and_one_from_the_past_hints_at_clocks() -> (
    None
):
    with rig() as it:
        assert repr(it.login) == "<OAuthBearerLogin https://idp/token>"
        for nonsense in ("hunter2", "a.b.c"):
            it.answer(nonsense)
            said = "https://idp/token gave no usable token: "
            with pytest.raises(SaslAuthenticationError, match=said) as caught:
                it.login.token()
            assert nonsense not in str(caught.value)
            it.clock.advance(10_000)
        it.answer(it.token("alice", -60_000))
        with pytest.raises(SaslAuthenticationError, match="expired 60 s ago; do the clocks agree"):
            it.login.token()


def test_a_bug_does_not_end_the_thread() -> None:
    with rig() as it:
        it.answer(KeyError("hunter2"))
        with pytest.raises(SaslAuthenticationError, match="https://idp/token can't be reached: KeyError"):
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
