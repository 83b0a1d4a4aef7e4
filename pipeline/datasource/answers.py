"""Decides from a sidecar's answer which records are written, and when to retry. Pure.

    200, 202                 all are written, if the answer counts as many records as the request
    207                      some are written: each item reports its record
    408, 429, 503            nothing was written, or that is unknown: repeat the request with the same key
    broken connection        the same
    retriable, but no 404    the same
    5xx without JSON         the same: it is not a sidecar's answer, but a proxy's, say
    504, written unknown     repeat it with the same key; if the replayed answer still says "unknown", resend
                             those records with a new key, which risks a second copy
    else                     a final refusal: the reason, with a remedy

    wait before try n = max(Retry-After, 100 ms * 2^(n-1), at most 5 s, times 0.8 to 1.2)

Retries end after a time budget. `now_ms` and `sleep_ms` are passed in. One object per request and thread.
Source: docs/http.md, "Idempotency keys" and "Errors".
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipeline.datasource.sidecar_http import SidecarUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from pipeline.datasource.sidecar_http import Answer


REPLAYED: Final = "pilotfish-replayed"

#: The remedy for an answer that is not Pilotfish's.
CHECK_URL: Final = "check that the option url is the address of a Pilotfish sidecar"

_REMEDIES: Final = {
    400: "see the options of this write",
    401: "give a token of its tokens file, with the option token_file",
    403: "the token's entry in the tokens file, and the sidecar's own user in Kafka, must allow it",
    404: "create the topic, or name another",
    413: "lower the option batch_bytes or batch_records, or raise the sidecar's limit",
    415: CHECK_URL,
    421: "name the sidecar by a host that its allowed_hosts has",
    422: "correct the row that it names",
}


#: Kafka's retry.backoff.ms; and five times its retry.backoff.max.ms, since many tasks ask one sidecar.
_FIRST_MS: Final = 100
_LONGEST_MS: Final = 5_000
_JITTER: Final = 0.2

#: Statuses of a look-up that the sidecar can't answer at the moment.
_LATER: Final = (429, 503)


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def sleep_ms(ms: int) -> None:
    time.sleep(ms / 1000)


class Patience:
    """The time budget and backoff for the retries of one request."""

    def __init__(
        self,
        budget_ms: int,
        random: Random,
        *,
        now_ms: Callable[[], int] = monotonic_ms,
        sleep_ms: Callable[[int], None] = sleep_ms,
    ) -> None:
        self._now_ms = now_ms
        self._sleep_ms = sleep_ms
        self._random = random
        self._begun_ms = now_ms()
        self._budget_ms = budget_ms
        self.retries = 0

    @property
    def spent_ms(self) -> int:
        return self._now_ms() - self._begun_ms

    def wait(self, at_least_ms: int = 0) -> bool:
        """Sleeps until the next try; returns False at once if that would exceed the budget."""
        backoff_ms = min(_FIRST_MS << min(self.retries, 16), _LONGEST_MS)
        wait_ms = max(at_least_ms, int(backoff_ms * self._random.uniform(1 - _JITTER, 1 + _JITTER)))
        if self.spent_ms + wait_ms > self._budget_ms:
            return False
        self.retries += 1
        self._sleep_ms(wait_ms)
        return True


def asked(ask: Callable[[], Answer], patience: Patience) -> Answer:
    """Returns a look-up's answer; retries within the budget if the sidecar is unreachable or overloaded.

    Raises SidecarUnreachableError if the budget is spent without an answer.
    """
    while True:
        try:
            answer = ask()
        except SidecarUnreachableError:
            if not patience.wait():
                raise
            continue
        if answer.status not in _LATER or not patience.wait(retry_after_ms(answer)):
            return answer


class Item(NamedTuple):
    """A record that was not written, with its index in the request; `message` is the sidecar's reason."""

    place: int
    message: str
    retriable: bool
    #: The record may have been written nevertheless.
    is_unknown: bool


class Written(NamedTuple):
    """The outcome of the request is known: `failed` lists records that are not, or may not be, in the log."""

    failed: Sequence[Item]
    replayed: bool


class Again(NamedTuple):
    """Repeat the same request with the same key, not before `after_ms`."""

    after_ms: int
    reason: str


class Refused(NamedTuple):
    """A final refusal."""

    reason: str


DeliveryOutcome = Written | Again | Refused


def delivery_outcome_of(answer: Answer, records: int) -> DeliveryOutcome:
    """Returns what to do after this answer to a request of `records` records."""
    replayed = answer.headers.get(REPLAYED) == "true"
    reported = _document(answer)
    if answer.status in (200, 202):
        # Many a web server answers anything with 200.
        if reported is not None and _accepted(reported) == records:
            return Written((), replayed)
        return Refused(
            f"{answer.status}, but not in the form of Pilotfish's API, so nothing may be written; {CHECK_URL}"
        )
    if reported is None:
        reason = f"{answer.status}, but not in the form of Pilotfish's API; {CHECK_URL}"
        # The answer is of something in between, such as a proxy that reached no sidecar.
        return Again(retry_after_ms(answer), reason) if answer.status >= 500 else Refused(reason)
    results = reported.get("results")
    failed = _failed(results) if isinstance(results, list) and len(results) == records else None
    if failed is not None and answer.status in (207, 504):
        if replayed or not any(item.is_unknown for item in failed):
            return Written(failed, replayed)
        return Again(0, "the outcome of some records is not known yet")
    reason = _reason(answer.status, reported)
    if answer.status in (408, 429, 503, 504) or (answer.status != 404 and reported.get("retriable") is True):
        return Again(retry_after_ms(answer), reason)
    return Refused(reason)


def retry_after_ms(answer: Answer) -> int:
    """Returns Retry-After in milliseconds; 0 if it is missing or not in seconds."""
    text = answer.headers.get("retry-after", "").strip()
    return int(text) * 1000 if text.isascii() and text.isdigit() else 0


def reason_of(answer: Answer) -> str:
    """Returns the sidecar's reason for a failed look-up, with a remedy."""
    reported = _document(answer)
    if reported is None:
        return f"{answer.status}, but not in the form of Pilotfish's API; {CHECK_URL}"
    return _reason(answer.status, reported)


def _document(answer: Answer) -> dict[str, Any] | None:
    try:
        read = json.loads(answer.body)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


def _accepted(reported: dict[str, Any]) -> object:
    """Returns how many records an answer without failures is about, by its results or as the spool has it."""
    results = reported.get("results")
    return len(results) if isinstance(results, list) else reported.get("spooled")


def _failed(results: Sequence[Any]) -> list[Item] | None:
    """Returns the items with an error; None if the results are malformed."""
    found: list[Item] = []
    for place, item in enumerate(results):
        if not isinstance(item, dict):
            return None
        error = item.get("error")
        if error is None:
            continue
        if not isinstance(error, dict):
            return None
        unknown = error.get("written") == "unknown"
        name = error.get("kafka_error")
        message = str(error.get("message", "no reason given")) + (f" [{name}]" if name else "")
        found.append(Item(place, message, unknown or error.get("retriable") is True, unknown))
    return found


def _reason(status: int, reported: dict[str, Any]) -> str:
    detail = reported.get("detail") or reported.get("title") or "no reason given"
    name = reported.get("kafka_error")
    remedy = _REMEDIES.get(status)
    return f"{status}: {detail}" + (f" [{name}]" if name else "") + (f"; {remedy}" if remedy else "")
