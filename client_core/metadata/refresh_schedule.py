"""Decides when a metadata refresh is due, and whether a partial one suffices.

`client/metadata_updater.py` sends the request. Those who ask for one call `Metadata.request_update`: the
sender after NOT_LEADER, the updater after a disconnect, `producer_metadata.py` for new topics.

Two backoffs delay a request. One grows with failed attempts. The other grows with equivalent responses, so
that a problem which refreshes can't fix causes no flood. Expiry, an explicit request or new topics make a
request due. No lock of its own: Metadata's lock guards it. Times are passed in.

If refreshes are spread (the sidecar, not Java), a response expires after a random part of
metadata.max.age.ms where an event caused or delayed the refresh, and after all of it where it came by age. An
event, such as a restart of the brokers, makes all clients of a cluster refresh within a second. Otherwise
their metadata would expire within a second, too, again and again.

Source: Metadata.timeToAllowUpdate, timeToNextUpdate, Kafka 4.3.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from client_core.backoff import ExponentialBackoff

RefreshReason = Literal[
    "initial", "bootstrap", "disconnect", "leader_error", "topic_missing", "manual", "expired"
]
#: Of several reasons for one request, the one with the highest value is reported.
_GRAVITY: Final[dict[RefreshReason, int]] = {
    "initial": 6,
    "bootstrap": 5,
    "disconnect": 4,
    "leader_error": 3,
    "topic_missing": 2,
    "manual": 1,
    "expired": 0,
}

#: The smallest part of metadata.max.age.ms after which a response expires.
_LEAST_PART: Final = 0.1


class RefreshSchedule:
    """The updates needed and the attempts made. Metadata reads its attributes."""

    def __init__(self, backoff: ExponentialBackoff, max_age_ms: int, *, spreads: bool = False) -> None:
        """`spreads`: whether metadata may expire before its maximum age, so that clients do not together."""
        self._backoff = backoff
        self._spreads = spreads
        #: The maximum age of metadata. It may fall, but never rises (`lower_max_age`).
        self.max_age_ms = max_age_ms
        #: The age at which the last full response expires.
        self._lasts_ms = max_age_ms
        # None: never, or no backoff is left (Java's 0, which requires wall-clock time).
        self._last_refresh_ms: int | None = None
        self._attempts = 0
        self._equivalent_responses = 0
        self._reason: RefreshReason | None = None
        self._reason_in_flight: RefreshReason | None = None
        #: When the last full response arrived; None before the first.
        self.last_successful_refresh_ms: int | None = None
        self.need_full_update = False
        self.need_partial_update = False
        #: When the next request is due, if only expiry makes one due; 0 if more must be checked.
        self.expires_at_ms = 0
        #: Counts the times that topics were added; a response to an older request does not cover them.
        self.request_version = 0
        #: The number of full requests, and the one that the last full response answers.
        self.full_requests = 0
        self.answered_full_request = 0

    # -- due times -------------------------------------------------------------------------------------------

    @property
    def update_requested(self) -> bool:
        return self.need_full_update or self.need_partial_update

    def time_to_next_update(self, now_ms: int) -> int:
        """Milliseconds until a request is due; 0 when it is due now (META-01)."""
        expires_ms = 0 if self.update_requested else self.time_to_expire(now_ms)
        if expires_ms >= self._backoff.max_ms:
            self.expires_at_ms = now_ms + expires_ms
            return expires_ms  # no backoff is longer: the usual case
        return max(expires_ms, self.time_to_allow_update(now_ms))

    def time_to_allow_update(self, now_ms: int) -> int:
        """Milliseconds until a request may be sent (META-02).

        Expiry resets the count of equivalent responses, so periodic updates have no backoff.
        """
        attempts_ms = self._backoff_left_ms(max(self._attempts - 1, 0), now_ms)
        if self.time_to_expire(now_ms) == 0:
            self._equivalent_responses = 0
        if self._equivalent_responses == 0:
            return attempts_ms
        return max(attempts_ms, self._backoff_left_ms(self._equivalent_responses - 1, now_ms))

    def time_to_expire(self, now_ms: int) -> int:
        """Milliseconds until the last full response is too old; 0 if there was none."""
        if self.last_successful_refresh_ms is None:
            return 0
        return max(self.last_successful_refresh_ms + self._lasts_ms - now_ms, 0)

    def _backoff_left_ms(self, attempts: int, now_ms: int) -> int:
        if self._last_refresh_ms is None or now_ms - self._last_refresh_ms >= self._backoff.max_ms:
            return 0  # no backoff is longer: the usual case
        return max(self._last_refresh_ms + self._backoff.backoff_ms(attempts) - now_ms, 0)

    # -- needed updates --------------------------------------------------------------------------------------

    def lower_max_age(self, max_age_ms: int) -> None:
        """Lowers the maximum age; a higher age changes nothing."""
        self.expires_at_ms = 0
        self.max_age_ms = min(self.max_age_ms, max_age_ms)
        self._lasts_ms = min(self._lasts_ms, max_age_ms)

    def need_full(self, reason: RefreshReason) -> None:
        """Requires a full request, after the backoff (META-08)."""
        self.expires_at_ms = 0
        self.need_full_update = True
        self._remember(reason)

    def need_new_topics(self) -> None:
        """Requires a request for new topics, without backoff (META-09)."""
        self.expires_at_ms = 0
        self._last_refresh_ms = None
        self.need_partial_update = True
        self._equivalent_responses = 0
        self.request_version += 1

    def is_partial_enough(self, now_ms: int) -> bool:
        """Returns whether the next request may omit known topics (META-10)."""
        return not self.need_full_update and self.time_to_expire(now_ms) > 0

    def take_reason(self) -> RefreshReason:
        """Returns the reason for the full request being built; a failure restores it."""
        self.full_requests += 1
        reason = self._full_reason
        self._reason, self._reason_in_flight = None, reason
        return reason

    @property
    def reason(self) -> RefreshReason:
        """Why the next request, full or partial, is needed."""
        is_partial = self.need_partial_update and not self.need_full_update
        return "topic_missing" if is_partial and self._reason is None else self._full_reason

    @property
    def _full_reason(self) -> RefreshReason:
        never = self.last_successful_refresh_ms is None
        return self._reason or ("initial" if never else "expired")

    def _remember(self, reason: RefreshReason) -> None:
        if self._reason is None or _GRAVITY[reason] > _GRAVITY[self._reason]:
            self._reason = reason

    # -- results ---------------------------------------------------------------------------------------------

    def succeeded(self, request_version: int, is_partial: bool, now_ms: int) -> None:
        """Notes a response (META-06). Unless `progressed` follows, it equals the one before."""
        self.expires_at_ms = 0
        self.need_partial_update = request_version < self.request_version
        self._last_refresh_ms = now_ms
        self._attempts = 0
        self._equivalent_responses += 1
        if not is_partial:
            self.need_full_update = False
            self.answered_full_request = self.full_requests
            in_time = self.time_to_expire(now_ms - self._backoff.max_ms) > 0
            self._lasts_ms = self.max_age_ms
            if self._spreads and not (self._reason_in_flight == "expired" and in_time):
                self._lasts_ms = math.ceil(self._backoff.random.uniform(_LEAST_PART, 1) * self.max_age_ms)
            self._reason = self._reason_in_flight = None
            self.last_successful_refresh_ms = now_ms

    def progressed(self) -> None:
        """Resets the count of equivalent responses: the need or the response was new (META-03)."""
        self._equivalent_responses = 0

    def failed(self, now_ms: int) -> None:
        """Notes an attempt without a usable response: the update stays due, after the backoff (META-07)."""
        self.expires_at_ms = 0
        self._last_refresh_ms = now_ms
        self._attempts += 1
        self._equivalent_responses = 0
        if self._reason_in_flight is not None:
            self._remember(self._reason_in_flight)
            self._reason_in_flight = None
