"""A sidecar's listener under http_shapes.py, http_bodies.py and mutations of them, and the rules for each.

    await shapes_hold(prober)        each gets the answers that it must get, and no others
    await bodies_hold(prober)        each is taken or refused, by every path that reads a body
    await mutations_hold(prober, range(1_000))

All end within the prober's deadline, none is an unexpected 500, and another caller is answered afterwards. It
is called by tests with a server in their own process, and by http_sidecar.py with one of its own. asyncio.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.http_bodies import PATHS, bodies
from tests.fuzz.http_prober import TRIES, Prober, statuses
from tests.fuzz.http_shapes import HURRIED, SMUGGLED, Shape, shapes
from tests.fuzz.mutation import mutated
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: Limits with short times, so that bad callers are ended at once.
LIMITS: Final[dict[str, int]] = {
    "request_timeout_ms": patient(1_000),
    "stall_timeout_ms": 1_000,
    "lookup_wait_ms": 20,
    "unknown_topics_per_second": 100_000,
}
#: How long a produce waits for an unknown topic: a setting.
UNKNOWN_TOPIC_WAIT_MS: Final = 20
#: All of them, for `RunningServer`.
SETTINGS: Final[dict[str, Any]] = {**LIMITS, "unknown_topic_wait_ms": UNKNOWN_TOPIC_WAIT_MS}
KAFKA: Final = {
    # Also the time for the body of a look-up: sixteen at once that unpack megabytes need much of it.
    "max.block.ms": "60000",
    "request.timeout.ms": "8000",
    "delivery.timeout.ms": "9000",
    "client.id": "fuzz",
}
#: Quiet for so long: nothing more comes on a connection that may stay open. Nothing hangs on it but patience.
_QUIET_S: Final = 1.5
_AT_ONCE: Final = 16
#: What the answer 429 asks for.
_RETRY_AFTER_S: Final = 1.0
#: Allowed answers to nonsense, without 500 and 502.
ANSWERS: Final = frozenset(
    {100, 200, 202, 204, 207, 304, 400, 401, 403, 404, 405, 406, 408, 411, 412, 413, 414, 415, 417, 421, 422}
    | {426, 429, 431, 501, 503, 504, 505}
)
#: What Dapr's 500 is about.
_OF_DAPR: Final = (b"CLOUD_EVENTS_SER", b"PUBLISH_MESSAGE")
#: Bodies of megabytes go one by one, or their memory would be that of all of them.
_LARGE_BYTES: Final = 500_000
#: Mutations are of what is short.
_LONGEST_SEED_BYTES: Final = 3_000
_TOKENS: Final = (
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" ", b"\t", b":", b"\x00", b"\xff", b"0\r\n\r\n", b";", b","),
    *(b"%00", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: localhost\r\n"),
    *(b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"HTTP/1.0", b"HTTP/1.1", b"GET ", b"POST "),
    *(b"HEAD ", b"OPTIONS ", b"FFFFFFFF\r\n", b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"/v1/topics"),
    *(b"?key=a", SMUGGLED),
)


async def shapes_hold(prober: Prober, chosen: Iterable[Shape] = ()) -> int:
    """How many were tried. AssertionError names the first that did not hold."""
    tried = await _each(chosen or shapes(), lambda shape: _shape_holds(prober, shape))
    await prober.is_answered()
    return tried


async def _shape_holds(prober: Prober, shape: Shape) -> None:
    for tries in range(1, TRIES + 1):
        said = await prober.send(shape.pieces, quiet_s=patient(tries * _QUIET_S))
        got = statuses(said)
        # On a slow machine a whole request may come too late, the answer later than `quiet_s`, and other
        # bodies may still be in memory.
        if len(got) >= len(shape.answers) and not {408, 429} & {*got}:
            break
        if 429 in got:
            await asyncio.sleep(tries * _RETRY_AFTER_S)
    assert len(got) == len(shape.answers), f"{shape}: {got}: {said[-300:]!r}"
    for status, promised in zip(got, shape.answers, strict=True):
        assert status in promised, f"{shape}: {got}, promised {sorted(promised)}: {said[-300:]!r}"


async def bodies_hold(prober: Prober, chosen: Iterable[tuple[str, bytes]] = ()) -> int:
    """How many were tried, on all paths together."""
    tried = 0
    for name, body in chosen or bodies():
        of_path = [(name, body, path, content_type) for path, content_type in PATHS]
        at_once = 1 if len(body) > _LARGE_BYTES else _AT_ONCE
        tried += await _each(of_path, lambda sent: _body_holds(prober, *sent), at_once)
    await prober.is_answered()
    return tried


async def _body_holds(prober: Prober, name: str, body: bytes, path: str, content_type: str) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    said = await prober.send((head.encode(), body))
    got = statuses(said)
    what = f"{name} to {path} ({content_type}): {got}: {said[-300:]!r}"
    assert len(got) == 1, what
    assert _are_allowed(got, said), what


def _are_allowed(got: list[int], said: bytes) -> bool:
    """Whether these answers may be given to nonsense.

    Dapr's own API says 500 for a body that it can't make a CloudEvent of, and for an event that was not
    acknowledged, with codes of its own.
    """
    of_dapr = sum(said.count(b'"errorCode":"ERR_PUBSUB_%s"' % code) for code in _OF_DAPR)
    return all(status in ANSWERS or status == 500 for status in got) and got.count(500) <= of_dapr


async def mutations_hold(prober: Prober, seeds: range) -> Counter[int]:
    """How often each status was answered; 0 where none was."""
    valid = [b"".join(shape.pieces) for shape in shapes()]
    valid = [sent for sent in valid if 0 < len(sent) <= _LONGEST_SEED_BYTES]
    answered: Counter[int] = Counter()

    async def holds(seed: int) -> None:
        random = Random(f"http {seed}")
        sent = mutated(random.choice(valid), lambda: random.choice(valid), _TOKENS, random)
        answered.update(await bytes_hold(prober, sent) or (0,))

    await _each(seeds, holds, _AT_ONCE * 4)
    await prober.is_answered()
    return answered


class HttpFaultError(AssertionError):
    """Bytes got an answer that they must not get."""

    def __init__(self, sent: bytes, said: str) -> None:
        super().__init__(said)
        self.sent = sent


async def bytes_hold(prober: Prober, sent: bytes) -> list[int]:
    """The statuses of what was answered to any bytes at all. Raises HttpFaultError."""
    try:
        said = await prober.send((sent,), quiet_s=_QUIET_S)
    except AssertionError as error:
        raise HttpFaultError(sent, f"{error}: {sent!r}") from error
    got = statuses(said)
    if not _are_allowed(got, said):
        raise HttpFaultError(sent, f"{got}: {sent!r}: {said[-500:]!r}")
    return got


async def _each(things: Iterable[Any], hold: Callable[[Any], Any], at_once: int = _AT_ONCE) -> int:
    """Holds each, some at once; how many. Raises an ExceptionGroup of all AssertionErrors at the end."""
    left = iter(tuple(things))
    tried = 0
    faults: list[AssertionError] = []

    async def some() -> None:
        nonlocal tried
        for thing in left:
            tried += 1
            try:
                await hold(thing)
            except AssertionError as fault:
                faults.append(fault)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(some())
    if faults:
        raise ExceptionGroup("what did not hold", faults)
    return tried


async def slow_callers_are_ended(prober: Prober, count: int) -> int:
    """Heads and bodies that dribble in, a byte now and then: each is answered 408, however long it lasts."""
    beginnings: Sequence[bytes] = (
        b"GET /v1/cluster HTTP/1.1\r\nX: ",
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000000\r\n\r\n" % HURRIED,
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nF4240\r\n" % HURRIED,
    )

    async def hold(number: int) -> None:
        said = await prober.dribble(beginnings[number % len(beginnings)])
        assert statuses(said) == [408], f"{beginnings[number % len(beginnings)]!r}: {said!r}"

    tried = await _each(range(count), hold, count)
    await prober.is_answered()
    return tried
