"""Findings about slowness and its causes, in sentences: from a picture of the client, without a client."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from client_core import Backlog, BatchCount, Cause, Errors, NodeStatus, Phase, TopicPartition, TopicWait
from service.observe.slowness.collector import Failure, NodeSlowness
from service.observe.slowness.judging import Finding, Picture, judge
from service.observe.slowness.recent_times import NOTHING_RECENT, Recent
from tests.support.fake_producer import FakeProducer

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW_MS = 1_000_000


def node(**changed: Any) -> NodeStatus:
    status = NodeStatus(2, "kafka-2", 9092, "ready", 0, None, 0, 0, None, None)
    return replace(status, **changed)


def waiting(age_ms: int, records: int = 1_200, partitions: int = 14) -> BatchCount:
    return BatchCount(partitions, records, partitions, NOW_MS - age_ms)


def backlog(queued: Mapping[int | None, BatchCount] | None = None, **others: Any) -> Backlog:
    queued = queued or {}
    return Backlog(queued=queued, **{"by_node": queued, **others})


def picture(
    *nodes: NodeStatus,
    backlog: Backlog | None = None,
    metadata: Mapping[str, Any] | None = None,
    **changed: Any,
) -> Picture:
    """A healthy client with these nodes and changes."""
    healthy = FakeProducer().status()
    metadata_status = replace(healthy.metadata, **{"age_ms": 10, **(metadata or {})})
    of_status = {
        name: changed.pop(name) for name in list(changed) if hasattr(healthy, name) and name != "nodes"
    }
    status = replace(
        healthy, state=of_status.pop("state", "running"), metadata=metadata_status, nodes=nodes, **of_status
    )
    base = Picture(
        now_ms=NOW_MS,
        status=replace(status, producer_id=of_status.get("producer_id", 7)),
        backlog=backlog or Backlog(),
        nodes={},
        slow_after_ms=1_000,
        linger_ms=5,
        needs_producer_id=True,
        waits_for_replicas=True,
        may_read=lambda topic: True,
    )
    return replace(base, **changed)


def finding_lines(of: Picture) -> list[str]:
    """Each finding in one line."""
    return [f"{finding.node} {finding.phase}: {finding.detail}" for finding in judge(of)]


def the_finding(of: Picture) -> Finding:
    (finding,) = judge(of)
    return finding


SLOW_BEFORE = NodeSlowness(Recent(120, 900, 2_500, 4_000), None)
LATE = NodeSlowness(Recent(9, 1_500, 1_600, 1_600), None, {"Produce": Recent(2, 1_500, 1_600, 1_600)})


def quick(p50_ms: int = 2) -> NodeSlowness:
    times = Recent(100, p50_ms, p50_ms, p50_ms)
    return NodeSlowness(times, None, {"Produce": times})


# -- nothing is slow -----------------------------------------------------------------------------------------

RECOVERED = {"age_ms": 2_000, "last_error": "no node is available", "last_error_age_ms": 2_500}


BEGUN = Cause(Errors.NETWORK_EXCEPTION, None, 0, 999, "the connection is not set up yet")


def of_speeds(*p50_ms: int) -> Picture:
    """Nodes of which half of the answers took so long."""
    of_nodes = {i: quick(took_ms) for i, took_ms in enumerate(p50_ms, 1)}
    return picture(*(node(id=i) for i in of_nodes), nodes=of_nodes)


def test_without_slowness_there_is_no_finding() -> None:
    refused = node(state="disconnected", last_error="Connection refused")
    busy = node(in_flight_requests=5, oldest_in_flight_age_ms=900)
    cases = {
        "a healthy client": picture(node(), node(id=3, state="disconnected")),
        "answers come soon": picture(busy, backlog=backlog({2: waiting(900)}, by_node={2: waiting(900)})),
        "nobody needs the node that is gone": picture(refused),
        "it lingers": picture(node(), backlog=backlog({2: waiting(5_000)}), linger_ms=10_000),
        "it lingered, and has waited for less": picture(node(), backlog=backlog({2: waiting(1_004)})),
        "it has only just begun": picture(metadata={"age_ms": None}),
        "it has only just begun to connect": picture(metadata={"age_ms": None}, cause_of_silence=BEGUN),
        "a refresh failed before the last good one": picture(metadata=RECOVERED),
        "one node is a little slower": of_speeds(90, 2, 2),
        "all nodes are alike": of_speeds(300, 300, 300),
        "one is not many times slower": of_speeds(300, 100, 100),
        "there is nobody to compare with": of_speeds(900),
    }
    assert {name: judge(of) for name, of in cases.items()} == {name: [] for name in cases}


# -- findings ------------------------------------------------------------------------------------------------


def test_a_finding_about_a_node_says_what_is_wrong_and_what_waits_for_it() -> None:
    slow = node(in_flight_requests=5, oldest_in_flight_age_ms=3_200)
    unanswered = node(id=-1, in_flight_requests=1, oldest_in_flight_age_ms=2_000)
    refused = node(state="disconnected", last_error="Connection refused", backoff_left_ms=400)
    failure = Failure("Produce", "NOT_ENOUGH_REPLICAS", "too few in sync", NOW_MS - 12_000, NOW_MS - 100, 30)
    one = backlog({2: waiting(12_000, records=1, partitions=1)})
    fast = NodeSlowness(Recent(120, 4, 40, 4_000), None)
    late = NodeSlowness(NOTHING_RECENT, None, {"Metadata": Recent(1, 1_500, 1_500, 1_500)})
    cases = {
        "it leaves requests unanswered": (
            picture(slow, backlog=backlog({}, by_node={2: waiting(3_300)})),
            "2 delivery: node 2 has 5 requests in flight, the oldest for 3.2 s; 1,200 records of 14 "
            "partitions wait for it",
        ),
        "it does, and no record waits for it": (
            picture(unanswered),
            "-1 delivery: kafka-2:9092 of bootstrap.servers has 1 request in flight, the oldest for 2.0 s",
        ),
        "it can not be reached": (
            picture(refused, backlog=backlog({2: waiting(1_000)})),
            "2 queue: node 2 (kafka-2:9092) is not connected: Connection refused; next attempt in 0.4 "
            "s; 1,200 records of 14 partitions wait for it",
        ),
        "it refuses batches again and again": (
            picture(node(), backlog=one, nodes={2: NodeSlowness(NOTHING_RECENT, failure)}),
            "2 delivery: node 2 fails with NOT_ENOUGH_REPLICAS (too few in sync) for 12.0 s; 1 record "
            "of 1 partition waits for it",
        ),
        "it was slow before, and nothing is slow since": (
            picture(node(), node(id=4), nodes={2: SLOW_BEFORE, 4: fast}),
            "2 delivery: node 2 was slow in the last minute: 120 Produce requests, one in a hundred "
            "took 2.5 s or more, the longest 4.0 s",
        ),
        "it gives late answers, and no other does": (
            picture(node(id=1), node(), nodes={1: SLOW_BEFORE, 2: LATE}),
            "2 delivery: node 2 answers late: of 2 Produce requests in the last 10 s the longest took 1.6 s",
        ),
        "it is late with metadata alone": (
            picture(node(id=1), node(), nodes={1: quick(), 2: late}),
            "2 metadata: node 2 answers late: of 1 Metadata request in the last 10 s the longest took 1.5 s",
        ),
        "it is far slower than the others, below the limit": (
            of_speeds(2, 300, 4),
            "2 delivery: node 2 answers far later than the others: half of its Produce requests of the "
            "last 10 s took 300 ms or more, those of the others 3 ms",
        ),
    }
    assert {name: finding_lines(of) for name, (of, _) in cases.items()} == {
        n: [line] for n, (_, line) in cases.items()
    }


def test_the_finding_names_the_request_that_a_node_is_busy_with_or_failed() -> None:
    queued = backlog({2: waiting(5_000)})
    gone = node(state="disconnected", last_error="Connection refused", last_error_age_ms=457_000)
    pausing = picture(node(throttle_left_ms=1_200), backlog=backlog({2: waiting(2_000)}))
    for of, said in (
        (
            picture(node(state="connecting"), backlog=queued),
            "a connection to node 2 (kafka-2:9092) is being set up (connecting)",
        ),
        (
            picture(node(state="checking_api_versions"), backlog=queued),
            "a connection to node 2 (kafka-2:9092) is being set up (checking_api_versions)",
        ),
        (picture(node(state="authentication_failed"), backlog=queued), "rejects our credentials"),
        (pausing, "asked for a pause (a quota), of which 1.2 s are left"),
        (
            picture(gone, backlog=backlog({2: waiting(1_000)})),
            "is not connected: Connection refused, 457.0 s ago;",
        ),
    ):
        assert said in the_finding(of).detail, said


def test_a_finding_has_kafkas_name_of_the_cause() -> None:
    cause = Cause(Errors.SASL_AUTHENTICATION_FAILED, 2, 3, 900, "wrong password", "authentication")
    few = Failure("Produce", "NOT_ENOUGH_REPLICAS", "too few in sync", NOW_MS - 900, NOW_MS - 100, 30)
    late = backlog({2: waiting(5_000)})
    behind = backlog({2: replace(waiting(5_000), cause=replace_name(cause, Errors.NOT_ENOUGH_REPLICAS))})
    cases = {
        "SASL_AUTHENTICATION_FAILED": picture(node(state="authentication_failed", cause=cause), backlog=late),
        "NOT_ENOUGH_REPLICAS": picture(node(), backlog=late, nodes={2: NodeSlowness(NOTHING_RECENT, few)}),
        "NOT_ENOUGH_REPLICAS, of the oldest batch": picture(node(), backlog=behind),
        "THROTTLING_QUOTA_EXCEEDED": picture(node(throttle_left_ms=900), backlog=late),
        "LEADER_NOT_AVAILABLE": picture(node(), backlog=backlog({None: waiting(5_000)})),
        "REQUEST_TIMED_OUT": picture(node(in_flight_requests=1, oldest_in_flight_age_ms=2_000)),
    }
    assert {said: the_finding(of).kafka_error for said, of in cases.items()} == {
        said: said.partition(",")[0] for said in cases
    }
    assert the_finding(of_speeds(2, 300, 4)).kafka_error is None, "it is slow, and nothing has failed"


def replace_name(cause: Cause, error: Errors) -> Cause:
    return cause._replace(error=error, reason=None)


def test_a_slow_produce_is_judged_by_the_other_requests_of_the_broker() -> None:
    produce = {"Produce": Recent(100, 300, 300, 300)}
    quick_others, slow_others = Recent(7, 2, 5, 5), Recent(7, 200, 400, 400)
    cases = {
        "a follower may be slow, or its disk": (quick_others, True),
        "its disk may be slow": (quick_others, False),
        "the broker is slow, or the way to it": (slow_others, True),
        "took 300 ms or more, those of the others 2 ms": (NOTHING_RECENT, True),
    }
    for said, (others, waits_for_replicas) in cases.items():
        of_nodes = {1: quick(), 2: NodeSlowness(Recent(100, 300, 300, 300), None, produce, others)}
        of = picture(node(id=1), node(id=2), nodes=of_nodes, waits_for_replicas=waits_for_replicas)
        assert the_finding(of).detail.endswith(said), said


def test_what_the_whole_client_waits_for_is_shown() -> None:
    partitions = tuple(TopicPartition("orders", p) for p in range(5))
    full = backlog(
        {}, by_node={2: waiting(900)}, topic_waits=(TopicWait("orders", Phase.BUFFER, 12, NOW_MS - 2_100),)
    )
    down = node(id=-1, state="disconnected", last_error="Connection refused")
    stale = {"age_ms": 42_000, "last_error": "no node is available", "last_error_age_ms": 500}
    pending = "the connection to kafka:9092 is not set up yet"
    connecting = Cause(Errors.NETWORK_EXCEPTION, None, 0, 1_000, pending)
    cases = {
        "leaders": (
            picture(backlog=backlog({None: waiting(4_000, 50, 5)}, leaderless=partitions)),
            "None queue: 50 records of 5 partitions wait for a leader: orders-0, orders-1, orders-2 and "
            "2 more",
        ),
        "memory": (
            picture(node(), backlog=full, linger_ms=0),
            "2 buffer: buffer.memory (33,554,432 bytes) is full: 12 requests wait for it, the oldest "
            "for 2.1 s; most of its records wait for node 2 (1,200 records of 14 partitions)",
        ),
        "the first answer of a broker": (
            picture(down, metadata={"age_ms": None}, waiting_for_metadata=40),
            "None metadata: no broker of bootstrap.servers has answered yet: Connection refused; 40 "
            "requests and look-ups wait",
        ),
        "the first connection": (
            picture(node(state="connecting"), metadata={"age_ms": None}, cause_of_silence=connecting),
            "None metadata: no broker of bootstrap.servers has answered yet: the connection to kafka:9092 is "
            "not set up yet; 0 requests and look-ups wait",
        ),
        "metadata": (
            picture(metadata=stale),
            "None metadata: metadata can't be refreshed (no node is available, 0.5 s ago): it is 42.0 s "
            "old, and leaders may have moved",
        ),
    }
    assert {name: finding_lines(of) for name, (of, _) in cases.items()} == {
        n: [line] for n, (_, line) in cases.items()
    }


def test_the_newest_error_of_bootstrap_servers_is_shown_with_its_age() -> None:
    old = node(id=-1, state="disconnected", last_error="Connection refused", last_error_age_ms=457_000)
    new = node(id=-2, state="disconnected", last_error="Name not known", last_error_age_ms=2_000)
    for nodes in ((old, new), (new, old)):
        finding = the_finding(picture(*nodes, metadata={"age_ms": None}))
        assert "answered yet: Name not known, 2.0 s ago;" in finding.detail


def test_a_failure_of_something_else_or_long_ago_does_not_explain_a_produce() -> None:
    for api, last_ms in (("Metadata", NOW_MS), (None, NOW_MS), ("Produce", NOW_MS - 20_000)):
        of_node = NodeSlowness(NOTHING_RECENT, Failure(api, "NETWORK_EXCEPTION", "gone", last_ms, last_ms, 1))
        finding = the_finding(picture(node(), backlog=backlog({2: waiting(5_000)}), nodes={2: of_node}))
        assert finding.detail == (
            "1,200 records of 14 partitions wait in batches for node 2, the oldest for 5.0 s"
        ), api


def test_partitions_of_topics_that_the_caller_may_not_read_are_counted_and_not_named() -> None:
    leaderless = (TopicPartition("orders", 0), TopicPartition("secret", 0), TopicPartition("secret", 1))
    seen = picture(
        backlog=backlog({None: waiting(4_000)}, leaderless=leaderless),
        may_read=lambda topic: topic == "orders",
    )
    assert the_finding(seen).detail.endswith("wait for a leader: orders-0 and 2 more")
    assert the_finding(replace(seen, may_read=lambda _: False)).detail.endswith("a leader: 3 partitions")


def test_topics_that_requests_wait_for_are_shown_as_far_as_the_caller_may_read_them() -> None:
    waits = (
        TopicWait("nope", Phase.METADATA, 3, NOW_MS - 2_100),
        TopicWait("short", Phase.METADATA, 1, NOW_MS - 5_000, lacks_partition=True),
        TopicWait("secret", Phase.METADATA, 9, NOW_MS - 3_000),
        TopicWait("new", Phase.METADATA, 1, NOW_MS - 100),
    )
    found = judge(picture(backlog=backlog(topic_waits=waits), may_read=lambda topic: topic != "secret"))
    assert [finding.detail for finding in found] == [
        "3 requests wait for topic nope, which the brokers do not list, the oldest for 2.1 s",
        "1 request waits for a partition that topic short does not have, the oldest for 5.0 s",
        "9 requests wait for 1 other topic",
    ]
    assert {finding.phase for finding in found} == {"metadata"}


def test_brokers_that_can_not_be_reached_do_not_lack_a_topic() -> None:
    waits = (TopicWait("orders", Phase.METADATA, 3, NOW_MS - 2_100),)
    lost = node(state="disconnected", last_error="Connection refused", last_error_age_ms=400)
    assert the_finding(picture(lost, backlog=backlog(topic_waits=waits))).detail == (
        "no broker can be reached: Connection refused, 0.4 s ago; 3 requests wait for metadata, the oldest "
        "for 2.1 s"
    )


def test_only_some_topics_are_listed_one_by_one() -> None:
    waits = tuple(TopicWait(f"t{n}", Phase.METADATA, n, NOW_MS - 2_000) for n in range(1, 5_001))
    found = judge(picture(backlog=backlog(topic_waits=waits)))
    assert len(found) == 11
    assert found[0].detail.startswith("5,000 requests wait for topic t5000")
    assert found[-1].detail.endswith("for 4,990 other topics")


def test_a_batch_that_has_waited_far_beyond_its_linger_is_a_finding() -> None:
    assert the_finding(picture(node(), backlog=backlog({2: waiting(1_005)}))).node == 2


def test_a_missing_producer_id_is_a_finding_where_one_is_needed() -> None:
    waits = backlog({2: waiting(2_000)}, by_node={})
    without_id = picture(node(), backlog=waits, linger_ms=10_000, producer_id=None)
    assert "InitProducerId" in the_finding(without_id).detail
    assert judge(replace(without_id, needs_producer_id=False)) == []


def test_a_node_that_was_slow_before_is_not_named_beside_one_that_is_slow_now() -> None:
    for slow_now in (
        node(oldest_in_flight_age_ms=1_100, in_flight_requests=1),
        node(state="checking_api_versions"),
    ):
        found = picture(
            node(id=1, last_error="Connection refused", last_error_age_ms=457_000),
            slow_now,
            backlog=backlog({2: waiting(1_000)}),
            nodes={1: SLOW_BEFORE},
        )
        assert the_finding(found).node == 2, slow_now


def test_a_topic_that_is_not_there_hides_no_node_that_answers_late() -> None:
    waits = (TopicWait("nope", Phase.METADATA, 1, NOW_MS - 9_000),)
    found = judge(picture(node(), backlog=backlog(topic_waits=waits), nodes={2: LATE}))
    assert [finding.node for finding in found] == [None, 2]


def test_a_full_buffer_is_attributed_to_the_node_whose_records_are_late_not_to_the_one_with_most() -> None:
    waits = (TopicWait("orders", Phase.BUFFER, 12, NOW_MS - 2_100),)
    by_node = {1: waiting(50, records=9_000), 2: waiting(3_000, records=100)}
    found = judge(picture(node(id=1), node(), backlog=backlog({}, by_node=by_node, topic_waits=waits)))
    assert [finding.node for finding in found] == [2]


def test_the_finding_that_stops_everything_comes_first_and_then_the_one_most_records_wait_for() -> None:
    found = judge(
        picture(
            node(id=2, state="disconnected"),
            node(id=3, state="disconnected"),
            state="failed",
            backlog=backlog({2: waiting(2_000, records=10), 3: waiting(2_000, records=1_000)}),
        )
    )
    assert [(finding.phase, finding.node) for finding in found] == [
        ("client", None),
        ("queue", 3),
        ("queue", 2),
    ]
