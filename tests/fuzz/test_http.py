"""Hostile HTTP against a running server, on both loops; `make fuzz` tries it on a sidecar's own process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from tests.fuzz.http_bodies import PATHS, bodies
from tests.fuzz.http_listener import (
    KAFKA,
    SETTINGS,
    bodies_hold,
    mutations_hold,
    shapes_hold,
    slow_callers_are_ended,
)
from tests.fuzz.http_prober import Prober, statuses
from tests.fuzz.http_shapes import SMUGGLED, SMUGGLED_TOPIC, Shape, shapes
from tests.support.running_server import RunningServer
from tests.support.served import LOOPS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: Larger ones take megabytes and seconds, which is for `make fuzz`.
_SHORT_BYTES: Final = 250_000
_MUTATIONS: Final = 150


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def served(loop: str, scenario: Callable[[RunningServer, Prober], Awaitable[None]]) -> None:
    """Runs it against a server of its own."""

    async def run() -> None:
        kafka = {"bootstrap.servers": "localhost:9092", "linger.ms": "0", **KAFKA}
        running = RunningServer(kafka=kafka, **SETTINGS)
        running.producer.on_brokers = {"orders": 3}
        async with running.clients():
            await scenario(running, Prober(("127.0.0.1", running.api_port)))

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


def asked_for(running: RunningServer) -> set[str]:
    """The topics that a producer was asked for."""
    return {name for _, asked in running.producer.calls for name in asked.get("names", ())}


def test_each_shape_gets_what_it_was_promised_and_smuggles_nothing(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(running: RunningServer, prober: Prober) -> None:
        assert await shapes_hold(prober) > 150
        assert SMUGGLED_TOPIC not in asked_for(running)

    served(loop, scenario)
    assert not [record for record in caplog.records if record.exc_info]


def test_slow_callers_are_ended(loop: str) -> None:
    async def scenario(running: RunningServer, prober: Prober) -> None:
        assert await slow_callers_are_ended(prober, 6) == 6

    served(loop, scenario)


def test_bodies_that_strain_are_taken_or_refused(loop: str) -> None:
    short = [(name, body) for name, body in bodies() if len(body) <= _SHORT_BYTES]

    async def scenario(running: RunningServer, prober: Prober) -> None:
        assert await bodies_hold(prober, short) == len(short) * len(PATHS)

    served(loop, scenario)


def test_mutated_requests_are_answered_or_ended(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(running: RunningServer, prober: Prober) -> None:
        answered = await mutations_hold(prober, range(_MUTATIONS))
        assert answered[400] > answered[200] > 0

    served(loop, scenario)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_smuggled_request_would_be_noticed() -> None:
    """Checks that the first test above can fail, in both ways."""
    plain = b"GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answered = (frozenset({200}),)

    async def scenario(running: RunningServer, prober: Prober) -> None:
        with pytest.raises(ExceptionGroup) as caught:
            await shapes_hold(prober, [Shape("two requests", (plain + plain,), answered)])
        assert "two requests>: [200, 200]" in str(caught.value.exceptions[0])
        assert SMUGGLED_TOPIC not in asked_for(running)
        # Nobody answers the second here: the fake producer leaves its caller waiting.
        await shapes_hold(prober, [Shape("and one for a topic", (plain + SMUGGLED,), answered)])
        assert SMUGGLED_TOPIC in asked_for(running)

    served("uvloop", scenario)


def test_shapes_have_names_of_their_own() -> None:
    names = [shape.name for shape in shapes()]
    assert len(set(names)) == len(names)


def test_answers_are_counted_by_their_status_lines() -> None:
    said = b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 400 Bad\r\n\r\nnot HTTP/1.1: 300 "
    assert statuses(said) == [200, 400]
