"""GET /v1/watch as an event stream and as a poll: its events, resuming, rights, limits, and its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from client_core.producer.results.results import MetadataResult
from service.admission.caller import Caller, TopicRules
from service.native.watch import (
    BrokerChanged,
    ChangesAnswer,
    PartitionsChanged,
    Snapshot,
    TopicChanged,
    wants_json,
)
from tests.support.coroutine_tests import timed, until
from tests.support.event_stream import KnownCluster, watching
from tests.support.http_app import NativeApp
from tests.support.metadata_responses import node, partition, topic
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import httpx

    from tests.support.event_stream import ServerSentEvent


def described(
    name: str, leaders: Sequence[int | None], epoch: int = 0, *, isr: Sequence[int] = (1, 2)
) -> Any:
    """A topic whose partitions have these leaders."""
    partitions = [
        partition(p, leader=leader, epoch=epoch, replicas=(1, 2), isr=tuple(isr))
        for p, leader in enumerate(leaders)
    ]
    return topic(name, partitions)


PAYMENTS = described("payments", [1])


def of_orders(**settings: Any) -> NativeApp:
    """An app that knows one topic, of one partition."""
    web = NativeApp(**settings)
    web.producer.set_topics([described("orders", [1])])
    return web


@pytest.fixture
def web() -> NativeApp:
    app = NativeApp()
    app.producer.set_topics([described("orders", [1, 2]), PAYMENTS])
    return app


def only(*topics: str) -> Caller:
    """A caller who may read these topics."""
    return Caller("reader", TopicRules.of(topics), TopicRules.of(()))


def scope_of(caller: Caller) -> dict[str, Any]:
    return {"pilotfish.caller": caller}


def leaders(change: ServerSentEvent) -> list[tuple[int, int | None, int | None]]:
    """Partition, leader and the one before, of a leader event."""
    return [(p["partition"], p["leader"], p["previous_leader"]) for p in change.data["partitions"]]


# -- events --------------------------------------------------------------------------------------------------


async def test_a_watch_begins_with_a_snapshot_of_all_that_the_sidecar_knows(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch") as watch:
        snapshot = await watch.next("snapshot")
        assert watch.status == 200
        assert watch.headers["content-type"] == "text/event-stream"
        assert watch.headers["cache-control"] == "no-store"
        assert watch.reader.retry_ms == 2000
        assert snapshot.last_id == snapshot.data["version"] == version(web, 1)
        assert snapshot.data["metadata_version"] == web.version
        assert snapshot.data["cluster_id"] == "cluster"
        assert [broker["id"] for broker in snapshot.data["brokers"]] == [1, 2, 3]
        assert [found["name"] for found in snapshot.data["topics"]] == ["orders", "payments"]
        assert snapshot.data["topics"][0]["partitions"][1] == {
            "partition": 1,
            "leader": 2,
            "leader_epoch": 0,
            "replicas": [1, 2],
            "isr": [1, 2],
            "offline_replicas": [],
            "error": None,
        }
        Snapshot.model_validate(snapshot.data, strict=True)


async def test_a_changed_leader_is_sent_with_the_one_before(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch") as watch:
        await watch.next("snapshot")
        web.producer.set_topics([described("orders", [1, 2]), PAYMENTS])  # changes nothing, and sends nothing
        web.producer.set_topics([described("orders", [1, 1], 1), PAYMENTS])
        change = await watch.next("leader")
        assert (change.last_id, change.data["topic"]) == (version(web, 2), "orders")
        assert leaders(change) == [(0, 1, 1), (1, 1, 2)]
        assert change.data["partitions"][1]["leader_epoch"] == 1
        PartitionsChanged.model_validate(change.data, strict=True)


async def test_a_leader_that_a_produce_answer_names_is_sent_at_once(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch") as watch:
        await watch.next("snapshot")
        web.producer.name_leader("orders", 1, leader_id=3, epoch=5)
        assert leaders(await watch.next("leader")) == [(1, 3, 2)]


async def test_in_sync_replicas_that_change_are_distinguished_from_leaders(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch") as watch:
        await watch.next("snapshot")
        web.producer.set_topics([described("orders", [1, 2], isr=[1]), PAYMENTS])
        change = await watch.next("replicas")
        assert [p["isr"] for p in change.data["partitions"]] == [[1], [1]]
        assert leaders(change) == [(0, 1, 1), (1, 2, 2)]


async def test_topics_that_appear_grow_are_recreated_and_go_are_sent(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch") as watch:
        await watch.next("snapshot")
        known = [described("orders", [1, 2]), PAYMENTS]

        web.producer.set_topics([*known, described("new", [1])])
        appeared = await watch.next("topic")
        assert (appeared.data["change"], appeared.data["topic"]) == ("appeared", "new")
        assert (appeared.data["partition_count"], appeared.data["previous_partition_count"]) == (1, None)
        assert leaders(await watch.next("leader")) == [(0, 1, None)]

        web.producer.set_topics([*known, described("new", [1, 2])])
        grew = await watch.next("topic")
        assert (grew.data["change"], grew.data["partition_count"]) == ("grew", 2)
        assert leaders(await watch.next("leader")) == [(1, 2, None)]

        web.producer.set_topics([*known, topic("new", 1, nodes=(1,), topic_id=UUID(int=7))])
        recreated = await watch.next("topic")
        assert (recreated.data["change"], recreated.data["partition_count"]) == ("recreated", 1)
        TopicChanged.model_validate(recreated.data, strict=True)
        assert leaders(await watch.next("leader")) == [(0, 1, None)]

        web.producer.set_topics(known)
        gone = await watch.next("topic")
        assert (gone.data["change"], gone.data["topic"]) == ("gone", "new")
        assert (gone.data["partition_count"], gone.data["previous_partition_count"]) == (None, 1)


async def test_brokers_that_join_move_and_leave_are_sent(web: NativeApp) -> None:
    topics = [described("orders", [1, 2]), PAYMENTS]
    async with watching(web.app, "/v1/watch") as watch:
        await watch.next("snapshot")
        web.producer.nodes = [node(1), node(2, host="elsewhere"), node(4)]
        web.producer.set_topics(topics)
        moved, joined, left = [await watch.next("broker") for _ in range(3)]
        assert (moved.data["change"], moved.data["broker"]["host"]) == ("moved", "elsewhere")
        assert (joined.data["change"], joined.data["broker"]["id"]) == ("joined", 4)
        assert (left.data["change"], left.data["broker"]["id"]) == ("left", 3)
        BrokerChanged.model_validate(left.data, strict=True)


async def test_a_snapshot_and_the_changes_after_it_are_the_next_snapshot(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch") as watch:
        before = (await watch.next("snapshot")).data
        web.producer.set_topics(
            [described("orders", [2, None, 1], epoch=3, isr=[2]), described("audit", [1])],
            cluster_id="cluster",
        )
        changes = [await watch.take() for _ in range(5)]
        async with watching(web.app, "/v1/watch") as another:
            after = (await another.next("snapshot")).data
        known = KnownCluster(before)
        for change in changes:
            known.apply(change.event, change.data)
        assert known == KnownCluster(after)
        assert after["version"] == changes[-1].last_id


# -- which topics --------------------------------------------------------------------------------------------


async def test_a_watch_of_some_topics_hears_of_no_others(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch?topics=payments") as watch:
        snapshot = await watch.next("snapshot")
        assert [found["name"] for found in snapshot.data["topics"]] == ["payments"]
        web.producer.set_topics([described("orders", [2, 2], 1), described("payments", [2], 1)])
        change = await watch.next("leader")
        assert change.data["topic"] == "payments"
        assert change.last_id == version(web, 3)


async def test_an_unknown_topic_is_an_error_in_the_snapshot_and_is_sent_when_it_appears() -> None:
    web = NativeApp(watch_look_up_ms=100)
    web.producer.set_topics([described("orders", [1, 2])])
    async with watching(web.app, "/v1/watch?topics=nope,orders") as watch:
        await until(lambda: web.producer.waiting)
        web.producer.say_unknown(web.producer.waiting[0])
        snapshot = await watch.next("snapshot")
        (error,) = snapshot.data["errors"]
        assert error["topic"] == "nope"
        assert error["error"]["kafka_error"] == "UNKNOWN_TOPIC_OR_PARTITION"
        web.producer.clock.advance(2_000)  # beyond what is remembered as missing
        await until(lambda: web.producer.waiting)
        assert web.producer.waiting[0].asked["names"] == ["nope"]
        assert not web.producer.waiting[0].asked["create"]
        web.producer.set_topics([described("orders", [1, 2]), described("nope", [1])])
        appeared = await watch.next("topic")
        assert (appeared.data["topic"], appeared.data["change"]) == ("nope", "appeared")
        web.producer.finish(web.producer.waiting[0], MetadataResult(web.producer.cache))


def test_a_watched_topic_that_is_gone_is_looked_up_at_an_interval_for_all_its_watchers() -> None:
    web = of_orders(watch_look_up_ms=1_000)

    async def scenario() -> list[list[str]]:
        asked = []
        async with watching(web.app, "/v1/watch?topics=orders"):
            await asyncio.sleep(1.2)
            web.producer.set_topics([PAYMENTS])
            await asyncio.sleep(0.3)
            async with watching(web.app, "/v1/watch?topics=orders"):
                for pause_s in (0.01, 0.5, 0.9, 0.2):  # until 1.51, 2.01, 2.91 and 3.11 s
                    await asyncio.sleep(pause_s / 2)
                    web.producer.clock.advance(2_000)  # beyond what is remembered as missing
                    await asyncio.sleep(pause_s / 2)
                    asked.append([name for ticket in web.producer.waiting for name in ticket.asked["names"]])
                    for ticket in tuple(web.producer.waiting):
                        web.producer.say_unknown(ticket)
        return asked

    asked, _ = timed(scenario())
    assert asked == [["orders"], ["orders"], [], ["orders"]], "first for the second watcher itself"


def test_missing_topics_beyond_the_limit_of_unknown_names_are_looked_up_in_turn() -> None:
    web = of_orders(watch_look_up_ms=1_000, unknown_topics_per_second=2)
    names = {f"none-{n}" for n in range(6)}

    async def scenario() -> list[list[str]]:
        asked = []
        async with watching(web.app, f"/v1/watch?topics={','.join(names)}"):
            for pause_s in (0.1, *[1.1] * 5):
                await asyncio.sleep(pause_s)
                (ticket,) = web.producer.waiting
                asked.append(ticket.asked["names"])
                web.producer.say_unknown(ticket)
                web.producer.clock.advance(2_000)  # beyond what is remembered as missing
        return asked

    (_, *asked), _ = timed(scenario())
    assert [len(of_turn) for of_turn in asked] == [2] * 5
    assert {name for of_turn in asked[:3] for name in of_turn} == names


async def test_topics_that_are_watched_by_name_are_kept_in_use(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch?topics=orders") as watch:
        await watch.next("snapshot")
        known = web.producer.cache.topics
        assert known["orders"].use.touched
        assert not known["payments"].use.touched
        known["orders"].use.touched = False  # as the client does when it judges idle topics
        web.producer.set_topics([described("orders", [1, 1], 1), PAYMENTS])
        await watch.next("leader")
        assert web.producer.cache.topics["orders"].use.touched


async def test_a_caller_hears_only_of_topics_that_it_may_read(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch", scope=scope_of(only("pay*"))) as watch:
        snapshot = await watch.next("snapshot")
        assert [found["name"] for found in snapshot.data["topics"]] == ["payments"]
        assert snapshot.data["errors"] == []
        web.producer.set_topics([described("orders", [2, 2], 1), described("payments", [2], 1)])
        assert (await watch.next("leader")).data["topic"] == "payments"
        assert b"orders" not in watch.raw


async def test_a_topic_that_a_caller_names_and_may_not_read_is_an_error_whether_it_exists_or_not(
    web: NativeApp,
) -> None:
    for name in ("orders", "missing"):
        async with watching(web.app, f"/v1/watch?topics={name}", scope=scope_of(only("payments"))) as watch:
            snapshot = await watch.next("snapshot")
            (error,) = snapshot.data["errors"]
            assert (error["topic"], error["error"]["kafka_error"]) == (name, "TOPIC_AUTHORIZATION_FAILED")
            assert not web.producer.calls, "nobody is asked for what the caller may not read"
            Snapshot.model_validate(snapshot.data, strict=True)


async def test_a_topic_that_is_no_name_is_an_error_of_its_own(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch?topics=orders,a%20b") as watch:
        (error,) = (await watch.next("snapshot")).data["errors"]
        assert (error["topic"], error["error"]["kafka_error"]) == ("a b", "INVALID_TOPIC_EXCEPTION")


# -- resuming ------------------------------------------------------------------------------------------------


async def test_a_watcher_that_comes_again_hears_what_it_missed_and_no_snapshot(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch") as watch:
        last_id = (await watch.next("snapshot")).last_id
    web.producer.set_topics([described("orders", [2, 2], 1), PAYMENTS])
    web.producer.set_topics([described("orders", [1, 1], epoch=2), PAYMENTS])
    await until(lambda: web.app.sidecar.feed.log.number == 2)
    web.producer.set_topics([described("orders", [2, 2], epoch=3), PAYMENTS])
    async with watching(web.app, "/v1/watch", {"last-event-id": last_id}) as again:
        assert leaders(await again.next("leader")) == [(0, 1, 1), (1, 1, 2)]
        assert leaders(await again.next("leader")) == [(0, 2, 1), (1, 2, 1)]


async def test_the_header_wins_over_the_query_whose_id_a_browser_keeps_sending(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch") as watch:
        last_id = (await watch.next("snapshot")).last_id
        web.producer.set_topics([described("orders", [2, 2], 1), PAYMENTS])
        change = await watch.next("leader")
    headers = {"last-event-id": change.last_id}
    async with watching(web.app, f"/v1/watch?last_event_id={last_id}", headers) as again:
        web.producer.set_topics([described("orders", [1, 1], epoch=2), PAYMENTS])
        assert (await again.next("leader")).data["partitions"][0]["leader_epoch"] == 2
    async with watching(web.app, f"/v1/watch?last_event_id={last_id}") as by_query:
        assert (await by_query.next("leader")).last_id == change.last_id


#: Ids that lead nowhere, and why.
NOWHERE = {
    "00000000-7": "other_process",
    "{boot}-0": "gap",
    "{boot}-99": "gap",
    "nonsense": "bad_id",
    "{boot}-1x": "bad_id",
    "\u00fc\u20ac-1": "other_process",
}


async def test_an_id_that_leads_nowhere_is_said_so_and_answered_with_a_snapshot(web: NativeApp) -> None:
    for last_id, reason in NOWHERE.items():
        said = last_id.format(boot=web.app.sidecar.boot)
        async with watching(web.app, "/v1/watch", {"last-event-id": said}) as watch:
            reset = await watch.next("reset")
            assert (reset.data["reason"], reset.last_id) == (reason, ""), last_id
            await watch.next("snapshot")


async def test_a_poll_with_such_an_id_is_answered_with_a_reset_and_the_snapshot(web: NativeApp) -> None:
    await poll(web, "")
    for last_id, reason in NOWHERE.items():
        answer = (await poll(web, f"last_event_id={last_id.format(boot=web.app.sidecar.boot)}")).json()
        ChangesAnswer.model_validate(answer, strict=True)
        assert (answer["reset"], answer["reason"], answer["changes"]) == (True, reason, []), last_id
        assert answer["version"] == answer["snapshot"]["version"] == version(web, 1)


async def test_changes_that_are_not_kept_any_more_are_a_gap() -> None:
    web = of_orders(watch_history_events=4)
    async with watching(web.app, "/v1/watch") as watch:
        last_id = (await watch.next("snapshot")).last_id
        for epoch in range(1, 7):
            web.producer.set_topics([described("orders", [1], epoch=epoch)])
            change = await watch.next("leader")
    for target in ("/v1/watch", "/v1/watch?topics=orders"):
        async with watching(web.app, target, {"last-event-id": last_id}) as again:
            assert (await again.next("reset")).data["reason"] == "gap"
            assert (await again.next("snapshot")).last_id == change.last_id


async def test_nothing_is_followed_when_nobody_has_watched_for_long_and_the_next_hears_of_the_gap() -> None:
    web = of_orders(watch_linger_ms=0)
    async with watching(web.app, "/v1/watch") as watch:
        last_id = (await watch.next("snapshot")).last_id
    await asyncio.sleep(0)
    web.producer.set_topics([described("orders", [2], 1)])
    await asyncio.sleep(0)
    assert web.app.sidecar.feed.log.number == 1, "a change was numbered that nobody watched"
    async with watching(web.app, "/v1/watch", {"last-event-id": last_id}) as again:
        assert (await again.next("reset")).data["reason"] == "gap"
        snapshot = await again.next("snapshot")
        assert snapshot.data["topics"][0]["partitions"][0]["leader"] == 2


async def test_the_first_answer_of_a_broker_and_another_cluster_begin_the_stream_anew() -> None:
    web = NativeApp()
    async with watching(web.app, "/v1/watch") as watch:
        empty = await watch.next("snapshot")
        assert (empty.data["cluster_id"], empty.data["brokers"]) == (None, [])
        assert empty.data["refreshed_at"] is None
        web.producer.set_topics([described("orders", [1])])
        assert (await watch.next("reset")).data["reason"] == "cluster_changed"
        first = await watch.next("snapshot")
        assert first.data["cluster_id"] == "cluster"
        web.producer.set_topics([described("orders", [2])], cluster_id="another")
        assert (await watch.next("reset")).data["reason"] == "cluster_changed"
        second = await watch.next("snapshot")
        assert second.data["cluster_id"] == "another"
        assert number(second) > number(first) > number(empty)


async def test_a_cluster_that_changes_while_a_watcher_gets_the_one_before_begins_the_stream_anew() -> None:
    web = of_orders()
    async with watching(web.app, "/v1/watch") as slow, watching(web.app, "/v1/watch") as quick:
        await slow.next("snapshot")
        await quick.next("snapshot")
        slow.stall()
        for cluster in ("second", "third"):
            web.producer.set_topics([described("orders", [1])], cluster_id=cluster)
            await quick.next("reset")
            await quick.next("snapshot")
        slow.go_on()
        for cluster in ("second", "third"):
            assert (await slow.next("reset")).data["reason"] == "cluster_changed"
            assert (await slow.next("snapshot")).data["cluster_id"] == cluster


async def test_the_errors_after_a_change_of_the_cluster_are_what_its_brokers_say(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, shop={"read": ["absent", "orders"]})
    web = NativeApp(tokens_file=tokens.setting)
    query = "topics=absent,hidden,orders"

    def errors(snapshot: Any) -> dict[str, str]:
        return {error["topic"]: error["error"]["kafka_error"] for error in snapshot["errors"]}

    hidden = {"hidden": "TOPIC_AUTHORIZATION_FAILED"}
    headers = tokens.of("shop")
    async with watching(web.app, f"/v1/watch?{query}", headers) as watch, web.client() as client:
        await until(lambda: web.producer.waiting)
        web.producer.time_out(web.producer.waiting[0])
        late = errors((await watch.next("snapshot")).data)
        assert late == hidden | dict.fromkeys(("absent", "orders"), "REQUEST_TIMED_OUT")
        path = f"/v1/watch/changes?{query}&last_event_id={version(web, 1)}"
        polled = asyncio.create_task(client.get(path, headers=headers))
        await until(lambda: web.producer.waiting)
        web.producer.time_out(web.producer.waiting[0])
        await until(lambda: web.app.sidecar.feed.watchers == 2)
        web.producer.set_topics([described("orders", [1])])
        for _ in range(2):
            await until(lambda: web.producer.waiting)
            assert web.producer.waiting[0].asked["names"] == ["absent"]
            web.producer.say_unknown(web.producer.waiting[0])
        await watch.next("reset")
        expected = hidden | {"absent": "UNKNOWN_TOPIC_OR_PARTITION"}
        assert errors((await watch.next("snapshot")).data) == expected
        assert errors((await polled).json()["snapshot"]) == expected


def number(event: ServerSentEvent) -> int:
    return int(event.last_id.rpartition("-")[2])


# -- limits --------------------------------------------------------------------------------------------------


async def test_a_watcher_that_falls_behind_is_dropped_with_the_reason_and_can_come_again() -> None:
    web = of_orders(watch_queue_events=2)
    async with watching(web.app, "/v1/watch") as slow, watching(web.app, "/v1/watch") as quick:
        await slow.next("snapshot")
        await quick.next("snapshot")
        slow.stall()
        for epoch in range(1, 6):
            web.producer.set_topics([described("orders", [1], epoch=epoch)])
            await quick.next("leader")
        slow.go_on()
        stuck = await slow.next("leader")
        end = (await slow.next("end")).data
        assert end == {"reason": "too_slow", "detail": "the watcher is too many changes behind"}
        await slow.until_ended()
        web.producer.set_topics([described("orders", [1], epoch=6)])
        await quick.next("leader")
    async with watching(web.app, "/v1/watch", {"last-event-id": stuck.last_id}) as again:
        epochs = [(await again.next("leader")).data["partitions"][0]["leader_epoch"] for _ in range(5)]
        assert epochs == [2, 3, 4, 5, 6]


async def test_a_watcher_that_takes_nothing_at_all_is_cut_off() -> None:
    web = of_orders(stall_timeout_ms=20)
    aborted = asyncio.Event()
    async with watching(web.app, "/v1/watch", scope={"pilotfish.abort": aborted.set}) as watch:
        await watch.next("snapshot")
        watch.stall()
        web.producer.set_topics([described("orders", [1], 1)])
        await aborted.wait()
        await until(lambda: web.app.sidecar.feed.watchers == 0)


async def test_more_watchers_than_may_be_are_sent_away_with_429_and_a_place_that_is_left_is_given_again() -> (
    None
):
    web = of_orders(max_watchers=1)
    async with watching(web.app, "/v1/watch") as first:
        await first.next("snapshot")
        async with watching(web.app, "/v1/watch") as second:
            await second.until_ended()
            assert second.status == 429
            assert int(second.headers["retry-after"]) >= 1
            assert b"max_watchers" in second.raw
        assert not first.ended
    async with watching(web.app, "/v1/watch") as third:
        await third.next("snapshot")


async def test_a_caller_with_a_limit_of_its_own_does_not_take_the_places_of_others(web: NativeApp) -> None:
    limited = Caller("greedy", TopicRules.of("*"), TopicRules.of(()), max_waiting_requests=1)
    async with watching(web.app, "/v1/watch", scope=scope_of(limited)) as first:
        await first.next("snapshot")
        async with watching(web.app, "/v1/watch", scope=scope_of(limited)) as second:
            await second.until_ended()
            assert second.status == 429
        async with watching(web.app, "/v1/watch") as other:
            await other.next("snapshot")


async def test_a_watcher_hears_comments_while_nothing_changes_and_gives_its_place_back() -> None:
    web = of_orders(watch_heartbeat_ms=100)
    async with watching(web.app, "/v1/watch?topics=orders") as watch:
        await watch.next("snapshot")
        await watch.until(comments=2)
        assert (web.app.sidecar.feed.watchers, watch.events) == (1, [])
        watch.leave()
        await watch.until_ended()
        assert web.app.sidecar.feed.watchers == 0


# -- rhythm and end ------------------------------------------------------------------------------------------


def test_a_heartbeat_comes_only_after_a_time_without_events() -> None:
    web = of_orders(watch_heartbeat_ms=1_000)

    async def scenario() -> list[int]:
        async with watching(web.app, "/v1/watch") as watch:
            await watch.next("snapshot")
            await asyncio.sleep(0.6)
            web.producer.set_topics([described("orders", [2], 1)])
            await watch.next("leader")
            comments = []
            for pause_s in (0.0, 0.9, 0.2, 0.7, 0.2):
                await asyncio.sleep(pause_s)
                comments.append(watch.reader.comments)
            return comments

    comments, _ = timed(scenario())
    assert comments == [0, 0, 1, 1, 2]


def test_between_statuses_there_are_no_heartbeats_and_none_is_made_up_for() -> None:
    web = of_orders(watch_heartbeat_ms=1_000)

    async def scenario() -> tuple[int, int]:
        async with watching(web.app, "/v1/watch?status_ms=400") as watch:
            await watch.next("snapshot")
            await asyncio.sleep(3.1)
            watch.events.clear()
            watch.stall()
            await asyncio.sleep(20)
            watch.go_on()
            await asyncio.sleep(0.3)
            return watch.reader.comments, len(watch.events)

    (comments, statuses), _ = timed(scenario())
    assert comments == 0
    assert statuses <= 3, "the one that was late, and those that are due by now"


async def test_status_comes_in_the_rhythm_that_was_asked_for(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch?status_ms=250") as watch:
        snapshot = await watch.next("snapshot")
        first, second = await watch.next("status"), await watch.next("status")
        assert first.data["state"] == "starting"
        assert first.data["watchers"] == 1
        assert second.last_id == snapshot.last_id, "a status is not resumed from"


async def test_status_in_a_watch_names_only_topics_that_the_caller_may_read(web: NativeApp) -> None:
    web.producer.set_topics([described("orders", [2, 1], 1), described("payments", [2], 1)])
    async with watching(web.app, "/v1/watch?status_ms=250", scope=scope_of(only("payments"))) as watch:
        await watch.next("snapshot")
        status = await watch.next("status")
        assert {moved["topic"] for moved in status.data["leader_changes"]} == {"payments"}
        assert b"orders" not in watch.raw


async def test_a_watch_ends_in_good_order_when_the_sidecar_shuts_down(web: NativeApp) -> None:
    async with watching(web.app, "/v1/watch") as watch:
        await watch.next("snapshot")
        web.app.sidecar.drain.begin()
        end = (await watch.next("end")).data
        assert end == {"reason": "shutting_down", "detail": "the sidecar is shutting down"}
        await watch.until_ended()
    async with watching(web.app, "/v1/watch") as late:
        await late.next("end")


# -- the request ---------------------------------------------------------------------------------------------


def test_a_query_that_makes_no_sense_is_422_and_names_the_place(web: NativeApp) -> None:
    of_a_stream = {
        "topics=": "topics",
        "topics=a,,b": "topics",
        "topics=" + ",".join(f"t{n}" for n in range(1001)): "topics",
        "status_ms=249": "status_ms",
        "status_ms=1e3": "status_ms",
        "min_version=a-1": "min_version",
        "max_block_ms=1": "max_block_ms",
        "topic=a": "topic",
    }
    of_a_poll = {
        "min_version=1": "min_version",
        "min_version=-1": "min_version",
        "min_version={boot}-x": "min_version",
        "min_version={boot}-9999999999999999999": "min_version",
        "min_version={boot}-1&last_event_id={boot}-1": "min_version",
        "status_ms=1000": "status_ms",
        "max_block_ms=-1": "max_block_ms",
        "max_block_ms=3600001": "max_block_ms",
    }
    for queries, headers in ((of_a_stream, {}), (of_a_poll, JSON)):
        for query, place in queries.items():
            answer = web.get(f"/v1/watch?{query.format(boot=web.app.sidecar.boot)}", headers=headers)
            assert (answer.status_code, answer.json()["place"]) == (422, f"query.{place}"), query


def test_head_of_a_watch_is_answered_and_over(web: NativeApp) -> None:
    answer = web.ask("HEAD", "/v1/watch")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert web.app.sidecar.feed.watchers == 0


JSON = {"accept": "application/json"}


def version(web: NativeApp, number: int) -> str:
    return f"{web.app.sidecar.boot}-{number}"


def changed(*, orders: int = 0, payments: int = 0) -> list[Any]:
    """Both topics, with another leader where the epoch is not 0."""
    return [
        described("orders", [2 if orders else 1, 2], orders),
        described("payments", [2 if payments else 1], payments),
    ]


async def waiting_poll(web: NativeApp, query: str) -> asyncio.Task[httpx.Response]:
    """A poll that waits, while the feed follows already."""
    assert (await poll(web, "")).json()["version"] == version(web, 1)
    waiting = asyncio.create_task(poll(web, query))
    await until(lambda: web.app.sidecar.feed.watchers == 1)
    return waiting


async def change(web: NativeApp, number: int, topics: list[Any]) -> None:
    """What the brokers say now, and that the feed has heard of it as this number."""
    web.producer.set_topics(topics)
    await until(lambda: web.app.sidecar.feed.log.number == number)


async def poll(web: NativeApp, query: str) -> httpx.Response:
    async with web.client() as client:
        return await client.get(f"/v1/watch?{query}", headers=JSON)


def test_without_an_id_the_snapshot_is_answered_at_once(web: NativeApp) -> None:
    answer = web.get("/v1/watch", headers=JSON)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    snapshot = Snapshot.model_validate(answer.json(), strict=True)
    assert [found.name for found in snapshot.topics] == ["orders", "payments"]
    assert snapshot.version == version(web, 1)


async def test_a_poll_waits_for_the_next_change_and_answers_with_it(web: NativeApp) -> None:
    waiting = await waiting_poll(web, f"min_version={version(web, 2)}")
    web.producer.set_topics(changed(orders=1))
    answer = (await waiting).json()
    ChangesAnswer.model_validate(answer, strict=True)
    assert (answer["version"], answer["reset"]) == (version(web, 2), False)
    (event,) = answer["changes"]
    assert (event["id"], event["event"]) == (version(web, 2), "leader")
    assert event["data"]["partitions"][0]["leader"] == 2
    # And with one that came before it, at once.
    for query in (f"min_version={version(web, 2)}", f"last_event_id={version(web, 1)}"):
        assert (await poll(web, query)).json()["changes"] == [event]


async def test_a_poll_without_a_change_answers_with_none_when_its_time_is_over(web: NativeApp) -> None:
    await poll(web, "")
    answer = (await poll(web, f"min_version={version(web, 2)}&max_block_ms=1")).json()
    assert answer == {"version": version(web, 1), "reset": False, "changes": []}


async def test_a_number_beyond_the_next_is_waited_for_and_what_comes_before_it_is_left_out(
    web: NativeApp,
) -> None:
    waiting = await waiting_poll(web, f"min_version={version(web, 3)}")
    for epoch in (1, 2):
        await change(web, epoch + 1, changed(orders=epoch))
    assert [event["id"] for event in (await waiting).json()["changes"]] == [version(web, 3)]


async def test_a_change_that_does_not_concern_the_poll_does_not_end_it(web: NativeApp) -> None:
    waiting = await waiting_poll(web, f"topics=payments&last_event_id={version(web, 1)}")
    await change(web, 2, changed(orders=1))
    assert not waiting.done()
    web.producer.set_topics(changed(orders=1, payments=1))
    answer = (await waiting).json()
    assert [event["data"]["topic"] for event in answer["changes"]] == ["payments"]
    assert answer["version"] == version(web, 3)


async def test_the_version_of_an_answer_counts_the_changes_that_do_not_concern_it(web: NativeApp) -> None:
    await poll(web, "")
    await change(web, 3, changed(orders=1, payments=1))
    answer = (await poll(web, f"topics=orders&last_event_id={version(web, 1)}")).json()
    assert [event["id"] for event in answer["changes"]] == [version(web, 2)]
    assert answer["version"] == version(web, 3)


async def test_a_poll_asks_for_an_unknown_topic_no_longer_than_a_look_up_does(web: NativeApp) -> None:
    query = f"topics=payments,nope&last_event_id={version(web, 1)}&max_block_ms=60000"
    waiting = await waiting_poll(web, query)
    await until(lambda: web.producer.waiting)
    (asked,) = web.producer.waiting
    wait_ms = web.settings.internal.lookup_wait_ms
    assert asked.asked["deadline_ms"] == web.producer.clock.now_ms() + wait_ms
    web.producer.say_unknown(asked)
    await change(web, 2, changed(payments=1))
    assert len((await waiting).json()["changes"]) == 1


async def test_changes_that_are_not_kept_are_a_reset_for_min_version_too() -> None:
    web = of_orders(watch_history_events=1)
    await poll(web, "")
    for epoch in (1, 2, 3):
        await change(web, epoch + 1, [described("orders", [2], epoch)])
    answer = (await poll(web, f"min_version={version(web, 2)}")).json()
    assert (answer["reset"], answer["reason"]) == (True, "gap")
    assert answer["detail"] == f"the changes after {version(web, 1)} are no longer kept"
    assert answer["snapshot"]["topics"][0]["partitions"][0]["leader_epoch"] == 3


async def test_another_cluster_ends_a_poll_with_a_reset(web: NativeApp) -> None:
    waiting = await waiting_poll(web, f"min_version={version(web, 2)}")
    web.producer.set_topics([described("orders", [1])], cluster_id="another")
    answer = (await waiting).json()
    assert (answer["reset"], answer["reason"]) == (True, "cluster_changed")
    assert answer["snapshot"]["cluster_id"] == "another"


def test_a_version_of_another_process_is_412_at_once(web: NativeApp) -> None:
    answer = web.get("/v1/watch?min_version=00000000-1", headers=JSON)
    assert (answer.status_code, answer.json()["place"]) == (412, "query.min_version")


async def test_a_poll_hears_only_of_topics_that_its_caller_may_read(web: NativeApp) -> None:
    reader = Caller("reader", TopicRules.of(["pay*"]), TopicRules.of([]))
    scope = {"pilotfish.caller": reader}
    async with watching(web.app, "/v1/watch?topics=orders,payments", JSON, scope) as watch:
        await watch.until_ended()
        snapshot = watch.json()
        assert [found["name"] for found in snapshot["topics"]] == ["payments"]
        assert [error["topic"] for error in snapshot["errors"]] == ["orders"]


async def test_a_poll_that_waits_is_a_watcher_like_any_other() -> None:
    web = of_orders(max_watchers=1)
    await poll(web, "")
    async with watching(web.app, f"/v1/watch?min_version={version(web, 2)}", JSON) as first:
        await until(lambda: web.app.sidecar.feed.watchers == 1)
        assert (await poll(web, "")).status_code == 429
        first.leave()
        await first.until_ended()
    assert (await poll(web, "")).status_code == 200


async def test_a_poll_ends_when_the_sidecar_shuts_down(web: NativeApp) -> None:
    waiting = await waiting_poll(web, f"min_version={version(web, 2)}")
    web.app.sidecar.drain.begin()
    assert (await waiting).json()["changes"] == []


def test_one_answer_is_for_those_who_prefer_json_to_an_event_stream() -> None:
    wanted = {
        None: False,
        b"*/*": False,
        b"text/event-stream": False,
        b"text/html,application/xhtml+xml,*/*;q=0.8": False,
        b"application/json": True,
        b"Application/JSON; q=1, */*": True,
        b"application/json, text/event-stream": False,
        b"application/json, text/event-stream;q=0.5": True,
        b"application/json, text/event-stream; q=0": True,
        b"application/json;q=0.9, text/event-stream": False,
        b"application/json;q=0": False,
        b"application/json;q=high": False,
    }
    assert {accept: wants_json(accept) for accept in wanted} == wanted
