"""GET /v1/watch with `Accept: application/json`: the snapshot, or one answer when something has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from service.admission.caller import Caller, TopicRules
from service.native.watch import ChangesAnswer, Snapshot, wants_json
from tests.support.coroutine_tests import until
from tests.support.event_stream import watching
from tests.support.http_app import HttpApp
from tests.support.metadata_responses import partition, topic

if TYPE_CHECKING:
    import httpx

JSON = {"accept": "application/json"}


def led_by(leader: int, *names: str, epoch: int = 0) -> list[Any]:
    """Topics of one partition each."""
    return [topic(name, [partition(0, leader=leader, epoch=epoch, replicas=(1, 2))]) for name in names]


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    app.producer.set_topics(led_by(1, "orders", "payments"))
    return app


def version(web: HttpApp, number: int) -> str:
    return f"{web.app.sidecar.boot}-{number}"


async def poll(web: HttpApp, query: str) -> httpx.Response:
    async with web.client() as client:
        return await client.get(f"/v1/watch?{query}", headers=JSON)


def test_without_an_id_the_snapshot_is_answered_at_once(web: HttpApp) -> None:
    answer = web.get("/v1/watch", headers=JSON)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    snapshot = Snapshot.model_validate(answer.json(), strict=True)
    assert [found.name for found in snapshot.topics] == ["orders", "payments"]
    assert snapshot.version == version(web, 1)


async def test_a_poll_waits_for_the_next_change_and_answers_with_it(web: HttpApp) -> None:
    before = (await poll(web, "")).json()["version"]
    assert before == version(web, 1)
    waiting = asyncio.ensure_future(poll(web, f"min_version={version(web, 2)}"))
    await until(lambda: web.app.sidecar.feed.watchers == 1)
    web.producer.set_topics([*led_by(2, "orders", epoch=1), *led_by(1, "payments")])
    answer = (await waiting).json()
    ChangesAnswer.model_validate(answer, strict=True)
    assert (answer["version"], answer["reset"]) == (version(web, 2), False)
    (change,) = answer["changes"]
    assert (change["id"], change["event"]) == (version(web, 2), "leader")
    assert change["data"]["partitions"][0]["leader"] == 2


async def test_a_change_that_came_before_the_poll_is_answered_at_once(web: HttpApp) -> None:
    await poll(web, "")
    web.producer.set_topics([*led_by(2, "orders", epoch=1), *led_by(1, "payments")])
    await until(lambda: web.app.sidecar.feed.log.number == 2)
    for query in (f"min_version={version(web, 2)}", f"last_event_id={version(web, 1)}"):
        (change,) = (await poll(web, query)).json()["changes"]
        assert change["id"] == version(web, 2)


async def test_a_poll_without_a_change_answers_with_none_when_its_time_is_over(web: HttpApp) -> None:
    await poll(web, "")
    answer = (await poll(web, f"min_version={version(web, 2)}&max_block_ms=1")).json()
    assert answer == {"version": version(web, 1), "reset": False, "changes": []}


async def test_a_number_beyond_the_next_is_waited_for_and_what_comes_before_it_is_left_out(
    web: HttpApp,
) -> None:
    await poll(web, "")
    waiting = asyncio.ensure_future(poll(web, f"min_version={version(web, 3)}"))
    await until(lambda: web.app.sidecar.feed.watchers == 1)
    for epoch in (1, 2):
        web.producer.set_topics([*led_by(2, "orders", epoch=epoch), *led_by(1, "payments")])
        await until(lambda: web.app.sidecar.feed.log.number == epoch + 1)  # noqa: B023 - awaited in the loop
    assert [change["id"] for change in (await waiting).json()["changes"]] == [version(web, 3)]


async def test_a_change_that_does_not_concern_the_poll_does_not_end_it(web: HttpApp) -> None:
    await poll(web, "")
    waiting = asyncio.ensure_future(poll(web, f"topics=payments&last_event_id={version(web, 1)}"))
    await until(lambda: web.app.sidecar.feed.watchers == 1)
    web.producer.set_topics([*led_by(2, "orders", epoch=1), *led_by(1, "payments")])
    await until(lambda: web.app.sidecar.feed.log.number == 2)
    assert not waiting.done()
    web.producer.set_topics([*led_by(2, "orders", epoch=1), *led_by(2, "payments", epoch=1)])
    answer = (await waiting).json()
    assert [change["data"]["topic"] for change in answer["changes"]] == ["payments"]
    assert answer["version"] == version(web, 3)


async def test_an_id_that_leads_nowhere_is_answered_with_a_reset_and_the_snapshot(web: HttpApp) -> None:
    await poll(web, "")
    for last_id, reason in (
        ("00000000-1", "other_process"),
        ("nonsense", "bad_id"),
        (version(web, 0), "gap"),
        (version(web, 9), "gap"),
    ):
        answer = (await poll(web, f"last_event_id={last_id}")).json()
        ChangesAnswer.model_validate(answer, strict=True)
        assert (answer["reset"], answer["reason"], answer["changes"]) == (True, reason, [])
        assert answer["version"] == answer["snapshot"]["version"] == version(web, 1)


async def test_changes_that_are_not_kept_are_a_reset_for_min_version_too() -> None:
    web = HttpApp(watch_history_events=1)
    web.producer.set_topics(led_by(1, "orders"))
    await poll(web, "")
    for epoch in (1, 2, 3):
        web.producer.set_topics(led_by(2, "orders", epoch=epoch))
        await until(lambda: web.app.sidecar.feed.log.number == epoch + 1)  # noqa: B023 - awaited in the loop
    answer = (await poll(web, f"min_version={version(web, 2)}")).json()
    assert (answer["reset"], answer["reason"]) == (True, "gap")
    assert answer["snapshot"]["topics"][0]["partitions"][0]["leader_epoch"] == 3


async def test_another_cluster_ends_a_poll_with_a_reset(web: HttpApp) -> None:
    await poll(web, "")
    waiting = asyncio.ensure_future(poll(web, f"min_version={version(web, 2)}"))
    await until(lambda: web.app.sidecar.feed.watchers == 1)
    web.producer.set_topics(led_by(1, "orders"), cluster_id="another")
    answer = (await waiting).json()
    assert (answer["reset"], answer["reason"]) == (True, "cluster_changed")
    assert answer["snapshot"]["cluster_id"] == "another"


def test_a_version_of_another_process_is_412_at_once(web: HttpApp) -> None:
    answer = web.get("/v1/watch?min_version=00000000-1", headers=JSON)
    assert answer.status_code == 412
    assert answer.json()["place"] == "query.min_version"


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("min_version=1", "query.min_version"),
        ("min_version=-1", "query.min_version"),
        ("min_version={boot}-x", "query.min_version"),
        ("min_version={boot}-9999999999999999999", "query.min_version"),
        ("min_version={boot}-1&last_event_id={boot}-1", "query.min_version"),
        ("status_ms=1000", "query.status_ms"),
        ("max_block_ms=-1", "query.max_block_ms"),
        ("max_block_ms=3600001", "query.max_block_ms"),
    ],
)
def test_nonsense_is_422_and_names_the_place(web: HttpApp, query: str, place: str) -> None:
    answer = web.get(f"/v1/watch?{query.format(boot=web.app.sidecar.boot)}", headers=JSON)
    assert answer.status_code == 422, answer.text
    assert answer.json()["place"] == place


async def test_a_poll_hears_only_of_topics_that_its_caller_may_read(web: HttpApp) -> None:
    reader = Caller("reader", TopicRules.of(["pay*"]), TopicRules.of([]))
    scope = {"pilotfish.caller": reader}
    async with watching(web.app, "/v1/watch?topics=orders,payments", JSON, scope) as watch:
        await watch.until_ended()
        snapshot = watch.json()
        assert [found["name"] for found in snapshot["topics"]] == ["payments"]
        assert [error["topic"] for error in snapshot["errors"]] == ["orders"]


async def test_a_poll_that_waits_is_a_watcher_like_any_other() -> None:
    web = HttpApp(max_watchers=1)
    web.producer.set_topics(led_by(1, "orders"))
    await poll(web, "")
    async with watching(web.app, f"/v1/watch?min_version={version(web, 2)}", JSON) as first:
        await until(lambda: web.app.sidecar.feed.watchers == 1)
        assert (await poll(web, "")).status_code == 429
        first.leave()
        await first.until_ended()
    assert (await poll(web, "")).status_code == 200


async def test_a_poll_ends_when_the_sidecar_shuts_down(web: HttpApp) -> None:
    await poll(web, "")
    waiting = asyncio.ensure_future(poll(web, f"min_version={version(web, 2)}"))
    await until(lambda: web.app.sidecar.feed.watchers == 1)
    web.app.sidecar.drain.begin()
    assert (await waiting).json()["changes"] == []


@pytest.mark.parametrize(
    ("accept", "json"),
    [
        (None, False),
        (b"*/*", False),
        (b"text/event-stream", False),
        (b"text/html,application/xhtml+xml,*/*;q=0.8", False),
        (b"application/json", True),
        (b"Application/JSON; q=1, */*", True),
        (b"application/json, text/event-stream", False),
    ],
)
def test_one_answer_is_for_those_who_accept_json_and_no_event_stream(
    accept: bytes | None, json: bool
) -> None:
    assert wants_json(accept) is json
