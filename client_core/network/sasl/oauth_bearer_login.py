"""Keeps a valid OAUTHBEARER token, refreshed on its own thread.

    fetch ──> token ──> wait for the refresh time ──> fetch ...
      └──> failure: wait for the backoff, fetch again; the current token is used until it expires

The backoff of temporary failures grows from sasl.login.retry.backoff.ms to ...max.ms. A refusal waits for the
maximum at once, because no one fixes it within milliseconds. The thread starts at the first use of a token,
so an unused client has no thread. A connection that needs the first token waits for it, and fails if the
fetch fails.

    valid from                     refresh here: 80 to 85 % of its life        expires
        ├───────────────────────────────────┼──────────────────────────────────────┤
    now ├── min period ──┤  not before                    not after  ├── buffer ───┤

If the remaining life is too short for period and buffer, both are ignored and the same fraction applies. That
computation is pure. `token` any thread, `close` any but its own. Java logs in before the client starts, and
waits for it. Source: ExpiringCredentialRefreshingLogin, ExpiringCredentialRefreshConfig,
OAuthBearerRefreshingLogin, Retry, Kafka 4.3.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from client_core.backoff import ExponentialBackoff
from client_core.errors import DisconnectError, SaslAuthenticationError
from client_core.events import SecretReloaded

if TYPE_CHECKING:
    from random import Random

    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.network.sasl.client_jwt_validator import ClientJwtValidator, OAuthBearerToken
    from client_core.network.security_config import OAuthBearerConfig


_log = logging.getLogger(__name__)

#: Tokens expire by the wall clock, threads wait by the monotonic clock. This limits how long a suspended
#: machine or a changed wall clock goes unnoticed.
_LONGEST_WAIT_MS: Final = 60_000

#: How long `close` waits for the thread: neither a connect nor a callable can be interrupted. Less than
#: KafkaProducer's timeout for the I/O thread, which waits here.
_CLOSE_TIMEOUT_S: Final = 2.0


#: Minimum time between requests: an issuer may return the same token until it expires. Java then requests
#: ever faster.
_MIN_PAUSE_MS: Final = 1000

#: The settings may be 0, which would ask without a pause for as long as requests fail.
_MIN_BACKOFF_MS: Final = 10


@dataclass(frozen=True, slots=True)
class ExpiringCredentialRefresh:
    """Applies the settings sasl.login.refresh.*."""

    window_factor: float
    window_jitter: float
    min_period_ms: int
    buffer_ms: int
    random: Random

    def refresh_ms(self, token: OAuthBearerToken, wall_ms: int) -> int:
        """Returns when to fetch the next token; `wall_ms` is now, on the same clock."""
        return max(self._proposed_ms(token, wall_ms), wall_ms + _MIN_PAUSE_MS)

    def _proposed_ms(self, token: OAuthBearerToken, wall_ms: int) -> int:
        expires_ms = token.lifetime_ms
        part = self.window_factor + self.window_jitter * self.random.random()
        if wall_ms + self.min_period_ms + self.buffer_ms > expires_ms:
            return wall_ms + int((expires_ms - wall_ms) * part)
        start_ms = wall_ms if token.start_time_ms is None else token.start_time_ms
        proposed_ms = start_ms + int((expires_ms - start_ms) * part)
        if proposed_ms > expires_ms - self.buffer_ms:
            return expires_ms - self.buffer_ms
        return max(proposed_ms, wall_ms + self.min_period_ms)


class JwtRetriever(Protocol):
    """Gets tokens from an issuer, or from the application."""

    @property
    def setting(self) -> str:
        """The setting that names it, for events."""
        ...

    @property
    def shown(self) -> str:
        """Its address, for people."""
        ...

    def retrieve(self) -> str | OAuthBearerToken:
        """Returns a JWT's text, or a token whose lifetime is known otherwise; blocks.

        Raises DisconnectError (temporary), SaslAuthenticationError (final).
        """
        ...

    def cancel(self) -> None:
        """Ends a running `retrieve` if it can be interrupted; all later ones fail. Any thread."""
        ...


class TokenSource(Protocol):
    """Provides a token whenever one is needed."""

    def token(self) -> OAuthBearerToken | None:
        """Returns a valid token; None while it is being fetched: ask again later. Never waits.

        Raises DisconnectError when no fetch is possible at the moment, SaslAuthenticationError when it was
        refused.
        """
        ...

    @property
    def principal_name(self) -> str | None:
        """The principal of the last token; None before the first. Never waits."""
        ...

    def close(self) -> None:
        """Ends the renewal."""
        ...


class OAuthBearerLogin:
    """TokenSource over a token endpoint, or a callable of the application."""

    def __init__(
        self,
        config: OAuthBearerConfig,
        retriever: JwtRetriever,
        validator: ClientJwtValidator,
        clock: Clock,
        random: Random,
        events: EventSink,
        close_timeout_s: float = _CLOSE_TIMEOUT_S,
    ) -> None:
        self._close_timeout_s = close_timeout_s
        self._retriever = retriever
        self._validator = validator
        self._clock = clock
        self._events = events
        self._backoff = ExponentialBackoff(
            max(config.retry_backoff_ms, _MIN_BACKOFF_MS),
            max(config.retry_backoff_max_ms, _MIN_BACKOFF_MS),
            random,
        )
        self._refresh = ExpiringCredentialRefresh(
            config.refresh_window_factor,
            config.refresh_window_jitter,
            config.refresh_min_period_s * 1000,
            config.refresh_buffer_s * 1000,
            random,
        )
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._token: OAuthBearerToken | None = None
        self._failure: DisconnectError | SaslAuthenticationError | None = None
        self._is_wanted = False  # a token is needed now, and there is none
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="pilotfish-oauthbearer-login", daemon=True)

    def token(self) -> OAuthBearerToken | None:
        wall_ms = self._clock.wall_ms()
        with self._lock:
            if self._is_closed:
                raise DisconnectError("the client is closing")
            if self._token is not None and self._token.is_valid_at(wall_ms):
                return self._token
            failure = self._failure
            if failure is None:
                self._want()
        if failure is not None:  # a new one for each connection: a raised error keeps its traceback
            raise type(failure)(f"there is no OAUTHBEARER token: {failure.message}")
        return None

    @property
    def principal_name(self) -> str | None:
        token = self._token
        return None if token is None else token.principal_name

    def _want(self) -> None:
        """Starts the thread, or wakes it: the machine may have slept past the token's expiry."""
        if self._thread.ident is None:
            self._thread.start()
        elif self._token is not None:
            self._is_wanted = True
            self._condition.notify_all()

    def close(self) -> None:
        """Ends the thread. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._condition.notify_all()
        self._retriever.cancel()
        if self._thread.ident is None:
            return
        self._thread.join(self._close_timeout_s)
        if self._thread.is_alive():
            _log.warning("still asking %s for a token; the thread ends afterwards", self._retriever.shown)

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        attempts = 0
        while not self._is_closed:
            try:
                token = self._fetch()
                refresh_ms = self._refresh.refresh_ms(token, self._clock.wall_ms())
            except DisconnectError as error:
                self._failed(error)
                self._wait_ms(self._backoff.backoff_ms(attempts))
                attempts += 1
            except SaslAuthenticationError as error:
                self._failed(error)
                self._wait_ms(self._backoff.max_ms)
            except BaseException as error:  # noqa: BLE001 - a bug must not end the thread: tokens expire in silence
                name = type(error).__name__  # the text may hold secrets
                self._failed(SaslAuthenticationError(f"{self._retriever.shown} can't be reached: {name}"))
                self._wait_ms(self._backoff.max_ms)
            else:
                attempts = 0
                self._succeeded(token)
                self._wait_until(refresh_ms)

    def _fetch(self) -> OAuthBearerToken:
        self._is_wanted = False
        where = self._retriever.shown
        retrieved = self._retriever.retrieve()
        try:
            token = self._validator.validate(retrieved) if isinstance(retrieved, str) else retrieved
        except SaslAuthenticationError as error:
            raise SaslAuthenticationError(f"{where} gave no usable token: {error.message}") from None
        past_ms = self._clock.wall_ms() - token.lifetime_ms
        if past_ms >= 0:
            raise SaslAuthenticationError(
                f"{where} gave a token that expired {past_ms // 1000} s ago; do the clocks agree?"
            )
        return token

    def _succeeded(self, token: OAuthBearerToken) -> None:
        with self._lock:
            is_first, self._token = self._token is None, token
            was_failing, self._failure = self._failure is not None, None
        _log.log(
            logging.INFO if is_first or was_failing else logging.DEBUG,
            "Got an OAUTHBEARER token from %s",
            self._retriever.shown,
        )
        self._report(None)

    def _failed(self, error: DisconnectError | SaslAuthenticationError) -> None:
        with self._lock:
            reported = self._failure
            self._failure = error
            if self._is_closed:
                return
        if reported is None or reported.message != error.message:
            _log.warning("No new OAUTHBEARER token: %s", error.message)
            self._report(error.message)

    def _report(self, fault: str | None) -> None:
        try:
            self._events.emit(SecretReloaded(self._retriever.setting, fault))
        except BaseException:  # noqa: BLE001 - a user's sink: without this thread tokens expire in silence
            _log.exception("An event sink failed")

    def _wait_until(self, wall_ms: int) -> None:
        while not self._is_over and (left_ms := wall_ms - self._clock.wall_ms()) > 0:
            self._wait_ms(min(left_ms, _LONGEST_WAIT_MS))

    def _wait_ms(self, wait_ms: int) -> None:
        with self._lock:
            self._clock.wait_for(self._condition, lambda: self._is_over, self._clock.now_ms() + wait_ms)

    @property
    def _is_over(self) -> bool:
        """Whether a wait must end."""
        return self._is_closed or self._is_wanted

    def __repr__(self) -> str:
        return f"<OAuthBearerLogin {self._retriever.shown}>"
