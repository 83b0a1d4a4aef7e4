"""Long answers are made in slices and sent in pieces: no turn of the loop is long, and no byte differs."""

from __future__ import annotations

import asyncio
import gc
import json
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from service.lookup.answers import topic_body
from service.lookup.lookup_table import LONG_PARTITIONS
from service.wire.freshness import etag_of
from service.wire.long_answers import CHUNK_BYTES, LongBody, Slices, joined
from tests.support.coroutine_tests import run
from tests.support.http_app import HttpApp
from tests.support.loop_turns import Turns
from tests.support.metadata_responses import node
from tests.support.running_server import RunningServer
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

#: No turn may take so many units of work (loop_turns.py): these take some 5. Load may multiply that,
#: so the best of many rounds counts; the first that is short enough ends them.
MOST_UNITS: Final = 50.0
_ROUNDS: Final = 20

TOPICS: Final = 20_000
PARTITIONS: Final = 30_000

JSON: Final = {"accept": "application/json"}
LOOKUPS: Final = json.dumps({"lookups": [{"topic": "big", "partition": n} for n in range(1_000)]}).encode()


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """Keeps existing objects from the collector. It runs before each measured scenario, and a walk over all
    objects of a test process takes longer than the scenario.
    """
    gc.collect()
    gc.freeze()


class Got(NamedTuple):
    """An answer in the pieces that it was sent in."""

    status: int
    headers: dict[str, str]
    chunks: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


async def ask(
    web: HttpApp, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"", method: str = "GET"
) -> Got:
    """One request by bare ASGI: httpx would put the pieces together, which takes long itself."""
    sent: list[Any] = []
    to_come: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return to_come.pop() if to_come else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    bare, _, query = path.partition("?")
    given = {"host": "localhost", "content-type": "application/json", **(headers or {})}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": bare,
        "raw_path": bare.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(n.encode(), v.encode()) for n, v in given.items()],
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
    }
    await web.app(scope, receive, send)
    start, *rest = sent
    reported = {n.decode(): v.decode() for n, v in start["headers"]}
    return Got(start["status"], reported, [message["body"] for message in rest if message["body"]])


def of(topics: Mapping[str, int], nodes: int = 3, on_brokers: Mapping[str, int] | None = None) -> HttpApp:
    web = HttpApp()
    web.producer.nodes = [node(number) for number in range(1, nodes + 1)]
    web.producer.set_topics(topics)
    web.producer.on_brokers = dict(on_brokers or {})
    return web


def of_many_topics() -> HttpApp:
    names = [f"topic-with-a-name-{number:06d}" for number in range(TOPICS)]
    Random(1).shuffle(names)
    return of({"orders": 3}, on_brokers=dict.fromkeys(names, 6))


def of_many_known_topics() -> HttpApp:
    return of({f"topic-{number}": 3 for number in range(TOPICS // 2)})


def of_many_partitions() -> HttpApp:
    return of({"big": PARTITIONS})


def of_many_brokers() -> HttpApp:
    return of({"orders": 3}, nodes=3_000)


#: Every list that may be long, by a cluster in which it is.
_V3: Final = "/v3/clusters/cluster"
_OF_BIG: Final = (
    *("/v1/topics/big", "/v1/topics/big?max_age_ms=60000", "/v1/brokers/1", "/v1/watch?topics=big"),
    *("/topics/big", "/topics/big/partitions", f"{_V3}/topics/big", f"{_V3}/topics/big/partitions"),
    f"{_V3}/topics/big/partitions/7/replicas",
)
LISTS: Final = [
    *((of_many_topics, path) for path in ("/v1/topics", "/topics", f"{_V3}/topics")),
    *((of_many_known_topics, path) for path in ("/v1/brokers/1", "/v1/watch", "/v1/status")),
    *((of_many_partitions, path) for path in _OF_BIG),
    *((of_many_brokers, path) for path in ("/v1/cluster", "/brokers", f"{_V3}/brokers")),
]


def in_short_turns(scenario: Callable[[Turns], None]) -> None:
    """Runs what measures its turns, again where one of them was long."""
    best = float("inf")
    for _ in range(_ROUNDS):
        turns = Turns()
        scenario(turns)
        best = min(best, turns.longest)
        if best < MOST_UNITS:
            return
    raise AssertionError(f"a turn of {best:.0f} units")


@pytest.mark.parametrize(("cluster", "path"), LISTS, ids=[f"{c.__name__} {p}" for c, p in LISTS])
def test_no_list_takes_the_event_loop_for_long_and_all_are_what_they_say(cluster: Any, path: str) -> None:
    headers = JSON if "/watch" in path else {}

    def asked_twice(turns: Turns) -> None:
        web = cluster()
        first = turns.run(ask(web, path, headers))
        again = turns.run(ask(web, path, headers))
        for got in (first, again):
            assert got.status == 200
            assert int(got.headers["content-length"]) == len(got.body)
            assert max(map(len, got.chunks)) < 3 * CHUNK_BYTES or path == "/v1/cluster"
        json.loads(first.body)
        if "etag" in first.headers:
            assert first.headers["etag"] == again.headers["etag"] == etag_of(first.body).decode()
            held = turns.run(ask(web, path, {**headers, "if-none-match": first.headers["etag"]}))
            assert (held.status, held.chunks) == (304, [])

    in_short_turns(asked_twice)


def test_many_leaders_in_one_request_take_the_event_loop_for_no_longer() -> None:
    def asked(turns: Turns) -> None:
        got = turns.run(ask(of_many_partitions(), "/v1/leaders", body=LOOKUPS, method="POST"))
        assert [found["partition"] for found in json.loads(got.body)["results"]] == list(range(1_000))

    in_short_turns(asked)


def test_many_callers_of_long_lists_share_each_turn() -> None:
    async def scenario(web: HttpApp) -> list[Got]:
        return await asyncio.gather(*(ask(web, "/topics/big/partitions") for _ in range(4)))

    def asked(turns: Turns) -> None:
        assert len({got.headers["etag"] for got in turns.run(scenario(of_many_partitions()))}) == 1

    in_short_turns(asked)


def test_a_caller_who_may_read_little_of_a_long_list_gets_it_in_slices_too(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, shop={"read": ["topic-with-a-name-000007"]})

    def asked(path: str, turns: Turns) -> None:
        web = HttpApp(tokens_file=tokens.setting)
        web.producer.set_topics({"orders": 3})
        web.producer.on_brokers = {f"topic-with-a-name-{number:06d}": 6 for number in range(TOPICS)}
        got = turns.run(ask(web, path, tokens.of("shop")))
        assert got.body.count(b'topic-with-a-name-000007"') >= 1
        assert b"topic-with-a-name-000008" not in got.body
        assert len(turns.ms) > 3

    for path in ("/topics", "/v1/topics", "/v3/clusters/cluster/topics"):
        in_short_turns(partial(asked, path))


def test_the_answer_about_a_long_topic_is_spelled_as_that_about_a_short_one_and_kept() -> None:
    web = HttpApp()
    web.producer.set_topics({"long": LONG_PARTITIONS + 1, "short": LONG_PARTITIONS})
    table, cache = web.app.sidecar.table, web.producer.cache
    for name in ("long", "short"):
        assert web.get(f"/v1/topics/{name}").content == topic_body(cache.topics[name], cache.nodes_by_id)
    entry = table.find(b"/v1/topics/long")
    assert entry is not None
    assert entry.is_long
    web.producer.set_topics({"long": LONG_PARTITIONS + 2, "short": LONG_PARTITIONS})
    assert table.find(b"/v1/topics/long") is None, "it is another topic's table now"
    assert len(web.get("/v1/topics/long").json()["partitions"]) == LONG_PARTITIONS + 2
    assert web.ask("HEAD", "/v1/topics/long").headers["etag"] == web.get("/v1/topics/long").headers["etag"]


async def test_a_long_topic_is_built_once_for_all_callers_though_the_first_leaves() -> None:
    web = of_many_partitions()
    table = web.app.sidecar.table
    first, *others = (asyncio.ensure_future(table.topic("big")) for _ in range(5))
    await asyncio.sleep(0)
    first.cancel()
    entries = await asyncio.gather(*others)
    assert len(set(map(id, entries))) == 1
    assert first.cancelled()


async def test_a_long_topic_that_changes_while_it_is_built_has_the_age_of_its_snapshot() -> None:
    web = of_many_partitions()
    table, producer = web.app.sidecar.table, web.producer
    building = asyncio.ensure_future(table.topic("big"))
    await asyncio.sleep(0)
    version = web.version
    producer.clock.advance(5_000)
    producer.set_topics({"big": PARTITIONS + 1})
    assert table.find(b"/v1/topics/big") is None
    entry = await building
    assert entry is not None
    assert (b"pilotfish-metadata-version", version.encode()) in entry.headers
    assert len(table) == 0, "what is old is not kept"


def test_a_long_answer_over_a_connection_leaves_look_ups_their_turn() -> None:
    async def scenario() -> None:
        running = RunningServer()
        running.producer.on_brokers = {f"topic-with-a-name-{number:06d}": 6 for number in range(TOPICS)}
        async with running.clients() as (api, _):
            answered: list[str] = []

            async def listed() -> None:
                answer = await api.get("/v3/clusters/cluster/topics")
                assert answer.headers["content-encoding"] == "gzip"
                assert answer.headers["etag"] == etag_of(answer.content).decode()[:-1] + '-gzip"'
                assert len(answer.json()["data"]) == TOPICS
                answered.append("list")

            async def looked_up() -> None:
                for _ in range(5):
                    assert (await api.get("/v1/topics/orders")).status_code == 200
                answered.append("look-ups")

            await asyncio.gather(listed(), looked_up())
            assert answered == ["look-ups", "list"]

    asyncio.run(scenario())


# -- slices --------------------------------------------------------------------------------------------------


def test_names_are_sorted_in_slices_as_they_would_be_at_once() -> None:
    for count in (0, 1, 1_999, 2_000, 2_001, 10_000):
        names = [f"t{number}" for number in range(count)]
        Random(count).shuffle(names)
        assert run(Slices().sorted(names)) == sorted(names), count


def test_a_body_is_the_pieces_whatever_they_are() -> None:
    for pieces in ([], [b""], [b"a"], [b"a" * CHUNK_BYTES, b"b"], [b"ab"] * CHUNK_BYTES):
        whole = b"".join(pieces)
        body = run(Slices().body(pieces))
        assert b"".join(body.chunks) == whole
        assert (body.length, body.etag) == (len(whole), etag_of(whole))
        assert body == LongBody.of(body.chunks)


def test_an_array_has_commas_between_its_items_and_none_for_those_left_out() -> None:
    assert b"".join(joined([b"", b"1", b"", b"2", b"3", b""])) == b"1,2,3"
    assert b"".join(joined([])) == b""


def test_work_that_is_done_or_fails_or_is_cancelled_takes_no_part_of_later_turns() -> None:
    slices = Slices()
    run(slices.body([b"a"]))
    assert slices._at_work == 0

    def broken() -> Any:
        yield b"a"
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        run(slices.body(broken()))
    assert slices._at_work == 0
