"""Concludes what is wrong from scrapes and alerts alone, by the steps of docs/alerts.md.

It knows neither the faults nor the brokers. `diagnose` gets the scrapes of some minutes, the oldest first.
Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from tests.operations.watched import Scrape

#: Errors of attempts whose cause is the connection: the broker's series say more.
_OF_CONNECTIONS: Final = frozenset({"NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"})
#: Growth within three minutes that is more than a restart makes.
_OFTEN_ENDED: Final = 6
_OFTEN_MOVED: Final = 40
#: A part of all requests: some callers mistype a name.
_OFTEN_MISSING: Final = 0.2
#: What records in flight got while their topic was deleted.
_OF_MISSING_TOPICS: Final = frozenset({"LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION"})
_SLOW_S: Final = 1.0
_DAY_S: Final = 24 * 3600


class _Window:
    """The scrapes of some minutes."""

    def __init__(self, scrapes: Sequence[Scrape]) -> None:
        self._first, self._last = scrapes[0], scrapes[-1]
        self._scrapes = scrapes

    def now(self, name: str, **labels: str) -> float | None:
        """The sum of a metric's series in the last scrape; None if there is none."""
        return _sum(self._last, name, labels)

    def growth(self, name: str, **labels: str) -> float:
        return (_sum(self._last, name, labels) or 0) - (_sum(self._first, name, labels) or 0)

    def grew_to_the_end(self, name: str, **labels: str) -> bool:
        """Whether it grew within the last minute, too: what is over is no finding."""
        before = self._scrapes[max(len(self._scrapes) - 5, 0)]
        return (_sum(self._last, name, labels) or 0) > (_sum(before, name, labels) or 0)

    def values_of(self, label: str, name: str) -> list[str]:
        """The values of a label of a metric, in the last scrape."""
        found = {dict(labels).get(label) for metric, labels in self._last if metric == name}
        return sorted(value for value in found if value is not None)


def _sum(scrape: Scrape, name: str, wanted: Mapping[str, str]) -> float | None:
    found = [
        value
        for (metric, labels), value in scrape.items()
        if metric == name and wanted.items() <= dict(labels).items()
    ]
    return sum(found) if found else None


def diagnose(scrapes: Sequence[Scrape], alerts: Set[tuple[str, str]], now_s: float) -> set[str]:
    """Returns the conclusions; none if nothing is wrong. `now_s` is the time of certificates."""
    window, names = _Window(scrapes), {name for name, _ in alerts}
    found = set[str]()
    expires_s = window.now("pilotfish_tls_certificate_expiry_timestamp_seconds")
    if expires_s is not None and expires_s - now_s < 7 * _DAY_S:
        found.add("a certificate expires")
    if (window.now("pilotfish_poll_loop_age_seconds") or 0) > 60:
        return found | {"the poll loop is stalled"}  # nothing else moves
    if window.now("pilotfish_authentication_rejected_seconds"):
        return found | {"credentials are rejected"}
    if window.now("pilotfish_metadata_last_refresh_success_timestamp_seconds") is None:
        return found | {f"there is no metadata: {_top_reason(window)}"}
    if (window.now("pilotfish_brokers_unreachable_seconds") or 0) > 30:
        return found | {f"no broker can be reached: {_top_reason(window)}"}
    found |= _of_brokers(window)
    found |= _of_records(window, found)
    if "LeaderlessPartitions" in names:
        found = (found - {"LEADER_NOT_AVAILABLE"}) | {"partitions have no leader"}
    if window.growth("pilotfish_metadata_leader_changes_total") > _OFTEN_MOVED:
        found = (found - {"NOT_LEADER_OR_FOLLOWER"}) | {"leaders move often"}
    if window.growth("pilotfish_http_requests_total", code="404") > _OFTEN_MISSING * window.growth(
        "pilotfish_http_requests_total"
    ):
        found = (found - _OF_MISSING_TOPICS) | {"a topic does not exist"}
    if window.growth("pilotfish_produce_throttle_seconds_sum") > 10:
        found.add("brokers throttle")
    if window.growth("pilotfish_buffer_exhausted_total"):
        return {"buffer.memory is full"}
    if window.growth("pilotfish_http_requests_total", code="429") > 0.05 * window.growth(
        "pilotfish_http_requests_total"
    ):
        return {"too many requests wait"}
    return found


def _of_brokers(window: _Window) -> set[str]:
    found = set[str]()
    brokers = window.values_of("broker", "pilotfish_broker_connection_state")
    silent = set[str]()
    for broker in brokers:
        if (
            window.now("pilotfish_broker_produce_latency_seconds", broker=broker, percentile="50") or 0
        ) > _SLOW_S:
            found.add(f"broker {broker} is slow")
        refused = {
            reason: window.growth("pilotfish_broker_disconnects_total", broker=broker, reason=reason)
            for reason in window.values_of("reason", "pilotfish_broker_disconnects_total")
        }
        is_ready = window.now("pilotfish_broker_connection_state", broker=broker, state="ready") == 1
        if refused.get("request_timeout", 0):
            silent.add(broker)
        elif not is_ready and (refused.get("setup_timeout", 0) or refused.get("refused", 0)):
            worst = max(refused, key=refused.__getitem__)
            found.add(f"broker {broker} can't be reached: {worst}")
        elif refused.get("closed", 0) > _OFTEN_ENDED:
            found.add(f"connections to broker {broker} end often: closed")
    return found | {f"broker {broker} does not answer" for broker in silent}


def _of_records(window: _Window, found: Set[str]) -> set[str]:
    """The errors of attempts and of records, unless a broker's connection is the cause."""
    errors = {
        error
        for name in ("pilotfish_record_errors_total", "pilotfish_record_retries_total")
        for label in ("cause", "error")
        for error in window.values_of(label, name)
        if window.growth(name, **{label: error}) and window.grew_to_the_end(name, **{label: error})
    }
    errors |= {
        error
        for error in window.values_of("error", "pilotfish_request_errors_total")
        if window.grew_to_the_end("pilotfish_request_errors_total", error=error)
    }
    return errors - _OF_CONNECTIONS - {"NONE"}


def _top_reason(window: _Window) -> str:
    reasons = window.values_of("reason", "pilotfish_broker_disconnects_total")
    return max(
        reasons,
        key=lambda reason: window.growth("pilotfish_broker_disconnects_total", reason=reason),
        default="",
    )
