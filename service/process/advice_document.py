"""Parses the advice document, and selects the advice for one service (`docs/advice.md`).

    {"version": 1,
     "advice": [{"cluster_id": "4L6g3nShT", "service": "billing",
                 "warm_topics": ["orders", "refunds"],      most used first
                 "refresh_max_age_ms": 60000,
                 "computed_at": "2026-11-21T10:00:00Z", "ttl_ms": 604800000,
                 "evidence": {...}}]}                       for people; not read

Unknown members are ignored. Only `cluster_id` and `service` of other services' entries are read, so
errors in their other members do no harm. All entries of this service must be valid, or none is used. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Final, TypeVar

import msgspec

from service.base.topic_names import fault_of_topic_name
from service.wire.freshness import rfc3339

VERSION: Final = 1

#: The largest file: a ConfigMap of Kubernetes has the same limit.
MAX_BYTES: Final = 1024 * 1024

#: The most topics that advice may add to a metadata request. The pipeline writes at most a tenth of it.
MAX_TOPICS: Final = 1_000

#: How far in the future the advice may be. The pipeline accepts events up to an hour ahead of its clock, and
#: the time of the latest event is the time of the advice. The second hour allows for an error of our own
#: clock.
AHEAD_MS: Final = 2 * 3_600_000

#: The longest that advice may be valid, because leaders move, and a forgotten file must end. The pipeline
#: writes a week.
MAX_TTL_MS: Final = 31 * 86_400_000

_T = TypeVar("_T")


class Outcome(Enum):
    """The outcome of the advice."""

    WAITING = "waiting"  # read; the cluster is not known yet
    USED = "used"
    UNREADABLE = "unreadable"  # no file, or no permission to read it
    TOO_LARGE = "too_large"
    BROKEN = "broken"
    OTHER_SERVICE = "other_service"
    OTHER_CLUSTER = "other_cluster"
    STALE = "stale"
    AHEAD = "ahead"


class AdviceIgnoredError(Exception):
    """Advice is not used. The message names the position and the reason."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome: Final = outcome


@dataclass(frozen=True, slots=True)
class Advice:
    """One entry. `place` is its position in the document."""

    place: str
    warm_topics: tuple[str, ...]
    refresh_max_age_ms: int
    computed_ms: int
    ttl_ms: int

    def check_age(self, now_wall_ms: int) -> None:
        """Raises AdviceIgnoredError if the advice is expired, or too far in the future."""
        if self.computed_ms > now_wall_ms + AHEAD_MS:
            raise AdviceIgnoredError(
                Outcome.AHEAD,
                f"{self.place}: computed at {rfc3339(self.computed_ms)}, which is in the future",
            )
        if self.computed_ms + self.ttl_ms < now_wall_ms:
            until = f"{rfc3339(self.computed_ms)}, and was valid for {self.ttl_ms / 3_600_000:g} hours"
            raise AdviceIgnoredError(Outcome.STALE, f"{self.place}: stale: it was computed at {until}")


class _Head(msgspec.Struct):
    version: int


class _Document(msgspec.Struct):
    advice: list[msgspec.Raw]


class _Whose(msgspec.Struct):
    cluster_id: str
    service: str


class _Entry(msgspec.Struct):
    warm_topics: list[str]
    refresh_max_age_ms: Annotated[int, msgspec.Meta(ge=1)]
    computed_at: Annotated[datetime, msgspec.Meta(tz=True)]
    ttl_ms: Annotated[int, msgspec.Meta(ge=1, le=MAX_TTL_MS)]


def parse_advice(content: bytes, service: str) -> Mapping[str, Advice]:
    """Returns the advice for this service by cluster, at least one. Raises AdviceIgnoredError."""
    head = _decoded(content, _Head, "the document")
    if head.version != VERSION:
        raise AdviceIgnoredError(
            Outcome.BROKEN, f"version: {head.version}; this sidecar reads version {VERSION}"
        )
    found: dict[str, Advice] = {}
    for number, raw in enumerate(_decoded(content, _Document, "the document").advice):
        place = f"advice[{number}]"
        whose = _decoded(raw, _Whose, place)
        if whose.service != service:
            continue
        if whose.cluster_id in found:
            raise AdviceIgnoredError(
                Outcome.BROKEN,
                f"{place}: second entry for service {service!r} on cluster {whose.cluster_id!r}",
            )
        found[whose.cluster_id] = _advice(_decoded(raw, _Entry, place), place)
    if not found:
        raise AdviceIgnoredError(Outcome.OTHER_SERVICE, f"advice: there is no entry for service {service!r}")
    return found


def _advice(entry: _Entry, place: str) -> Advice:
    topics = tuple(dict.fromkeys(entry.warm_topics))
    if len(topics) > MAX_TOPICS:
        raise AdviceIgnoredError(
            Outcome.TOO_LARGE, f"{place}.warm_topics: {len(topics)} topics; at most {MAX_TOPICS} are allowed"
        )
    for number, topic in enumerate(entry.warm_topics):
        fault = fault_of_topic_name(topic)
        if fault is not None:
            raise AdviceIgnoredError(Outcome.BROKEN, f"{place}.warm_topics[{number}]: {fault}")
    computed_ms = int(entry.computed_at.timestamp() * 1000)
    return Advice(place, topics, entry.refresh_max_age_ms, computed_ms, entry.ttl_ms)


def _decoded(content: bytes | msgspec.Raw, kind: type[_T], place: str) -> _T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise AdviceIgnoredError(Outcome.BROKEN, f"{place}: {error}") from error
