"""Compares what both sides did until a poll that would sleep.

Requests are compared by node, API, version and content, not by correlation id; outcomes by record; times as
they are. Nothing is rounded or left out but what is named here:

- turns: ours may need fewer (no extra turn after a send);
- connections to bootstrap addresses: ours closes them;
- the bytes of compressed batches: two libraries pack alike, not equally.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.lockstep.brokers import Request, read_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

State = dict[str, Any]


class Difference(NamedTuple):
    """A field that both sides have differently."""

    field: str
    ours: Any
    theirs: Any


class Compared(NamedTuple):
    """The differences of a step, and the requests of both sides."""

    differences: list[Difference]
    ours: list[Request]
    theirs: list[Request]


#: Ours has a class of its own where Java has a KafkaException.
_OUR_NAMES: Final = {"ProducerClosed": "Kafka"}


def _error(error: str | None) -> str | None:
    """An error's name in both languages."""
    if error is None:
        return None
    stem = error.removesuffix("Exception").removesuffix("Error")
    return _OUR_NAMES.get(stem, stem)


def _outcomes(outcomes: Sequence[Sequence[Any]]) -> list[tuple[int, int, str | None]]:
    return sorted((record, offset, _error(error)) for record, offset, error in outcomes)


def shown(request: Request, *, with_bytes: bool) -> tuple[Any, ...]:
    """What of a request is compared."""
    batches = tuple(
        (
            batch.topic,
            batch.partition,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.records,
            *((batch.size_bytes,) if with_bytes else ()),
        )
        for batch in request.batches
    )
    return request.node, request.api.name, request.version, request.acks, batches, request.topics


def _by_node(requests: Sequence[Request]) -> dict[int, list[Request]]:
    by_node: dict[int, list[Request]] = {}
    for request in requests:
        by_node.setdefault(request.node, []).append(request)
    return dict(sorted(by_node.items()))


def compare(ours: State, theirs: State, names: Mapping[UUID, str], *, with_bytes: bool) -> Compared:
    """Returns the differences; none where the step was equal."""
    sent_ours = [read_request(node, frame, names) for node, frame in ours["sent"]]
    alike = {(request.node, request.payload[:4] + request.payload[8:]): request for request in sent_ours}
    sent_theirs = []
    for node, hexadecimal in theirs["sent"]:
        frame = bytes.fromhex(hexadecimal)
        same_bytes = alike.get((node, frame[:4] + frame[8:]))
        if same_bytes is None:
            sent_theirs.append(read_request(node, frame, names))
        else:
            correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
            sent_theirs.append(same_bytes._replace(correlation_id=correlation_id))
    differences: list[Difference] = []

    def same(field: str, mine: object, other: object) -> None:
        if mine != other:
            differences.append(Difference(field, mine, other))

    by_ours, by_theirs = _by_node(sent_ours), _by_node(sent_theirs)
    same(
        "requests",
        [shown(r, with_bytes=with_bytes) for rs in by_ours.values() for r in rs],
        [shown(r, with_bytes=with_bytes) for rs in by_theirs.values() for r in rs],
    )
    if not differences and with_bytes:
        for node, mine in by_ours.items():
            for one, other in zip(mine, by_theirs[node], strict=True):
                if one.batches is not other.batches:
                    same(
                        "batch bytes",
                        [batch.data.hex() for batch in one.batches],
                        [batch.data.hex() for batch in other.batches],
                    )
    same("outcomes", _outcomes(ours["out"]), _outcomes(theirs["out"]))
    same(
        "appended",
        [(a[0], _error(a[2])) for a in ours["app"]],
        [(a[0], _error(a[2])) for a in theirs["app"]],
    )
    same("memory", ours["mem"], theirs["mem"])
    same("leaders", ours["lead"], theirs["lead"])
    same("queues", ours["queues"], theirs["queues"])
    same("producer", ours.get("pid"), theirs.get("pid"))
    same(
        "in flight",
        {n: c for n, c in ours["inflight"].items() if c},
        {n: c for n, c in theirs["inflight"].items() if c},
    )
    same("connects", sorted(ours["connect"]), sorted(theirs["connect"]))
    same(
        "closed connections",
        sorted(n for n in ours["closed"] if n >= 0),
        sorted(n for n in theirs["closed"] if n >= 0),
    )
    same("failed turns", ours["err"], theirs["err"])
    same("poll timeout", ours["t"], theirs["t"])
    return Compared(differences, sent_ours, sent_theirs)
