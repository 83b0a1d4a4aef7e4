"""Draws the plan of a seed.

Each seed switches on its own subset of faults and of callers' habits (swarm testing: Groce et al. 2012): what
is left out lets the rest go further. Shapes and faults that were added later are drawn apart, by a Random of
their own: so the seeds that others have looked at stay what they are.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.plan import BUSY_MS, FaultPlan, Plan, RecordPlan, RequestPlan, TopicPlan, plain_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: How many seeds have more records for one topic than fit into memory, and how many requests, until when.
_FLOODS: Final = 0.02
_FLOOD: Final = 70
_FLOODED_MS: Final = 900
#: How many seeds have many small batches of one partition under way, while leaders and networks fail.
_PIPELINES: Final = 0.2
_IN_A_PIPELINE: Final[Mapping[str, str]] = {
    "batch.size": "200",
    "linger.ms": "0",
    "buffer.memory": "1000000",
    "max.in.flight.requests.per.connection": "5",
    "acks": "all",
    "enable.idempotence": "true",
    "retries": "2147483647",
}
_FAULTS_OF_A_PIPELINE: Final = (
    "answers vanish",
    "both ways vanish",
    "cut connections",
    "isolate broker",
    "kill broker",
    "move leader",
    "requests vanish",
    "slow replica",
    "stale metadata",
    "stuck broker",
)
#: How many seeds have requests that come again, slowly, while brokers are silent and the first one waits.
_REPEATS: Final = 0.1
#: How many seeds with a spool have slow bodies for it, on a disk that is slow, fails, and loses its power.
_SLOW_SPOOLS: Final = 0.15
#: How many seeds with a spool have a topic with more bytes than its delivery has in memory, in large records.
_LARGE_FLOODS: Final = 0.03
#: How many seeds have a topic that loses partitions while requests wait for memory.
_SHRINKS: Final = 0.05
#: How long records of such a topic may take.
_SHRUNK_MS: Final = 1_500
#: How many seeds have a caller who sends for a partition before it is there and after; how many requests, and
#: how long before at most.
_AHEAD: Final = 0.03
_REQUESTS_AHEAD: Final = 120
_LONGEST_AHEAD_MS: Final = 150
#: How many seeds have callers who leave while they wait for a partition, and nothing else happens; and when.
_LEFT_ALONE: Final = 0.05
_ALONE_MS: Final = (BUSY_MS + 1_000, BUSY_MS + 1_700, BUSY_MS + 2_300)
#: How many seeds have callers with tokens, who use each other's keys.
_TENANTS: Final = 0.1
#: How many seeds have records with empty values.
_EMPTIES: Final = 0.1
#: How many seeds have keyed requests that come several times at once.
_DOUBLED: Final = 0.1
#: How many seeds go on after a pause that is longer than unused topics are kept, by how many requests.
_PAUSES: Final = 0.1
_AFTER_A_PAUSE: Final = 20
_FORGET_MS: Final = 5_000
_PAUSE_MS: Final = BUSY_MS + 2 * _FORGET_MS
#: How long faults come that come together.
_STORM_MS: Final = 400

FORMS: Final = ("json", "octet", "ndjson", "spool")

#: Faults by name: how often one comes in a seed that has it, and how long it lasts.
FAULTS: Final[Mapping[str, tuple[int, int]]] = {
    "kill broker": (2, 1_500),
    "isolate broker": (2, 1_200),
    "slow replica": (2, 1_500),
    "move leader": (4, 0),
    "stale metadata": (2, 800),
    "forget producers": (1, 0),
    "requests vanish": (2, 900),
    "answers vanish": (2, 900),
    "both ways vanish": (2, 900),
    "stuck broker": (2, 1_500),
    "quota": (2, 1_500),
    "latency": (2, 1_500),
    "refused": (2, 800),
    "cut connections": (4, 0),
    "no right to write": (1, 4_000),
    "too large": (1, 4_000),
    "delete topic": (1, 600),
    "no producer id": (3, 0),
    "clock jump": (2, 0),
    "sigkill": (2, 200),
    "power cut": (4, 200),
    "sigterm": (2, 200),
    "slow disk": (2, 900),
    "disk eio": (6, 0),
    "disk enospc": (6, 0),
    "no dead letters": (3, 5_000),
    "disk short": (6, 0),
    "requeue": (3, 0),
}
#: How many seeds have faults in a row that no others have, where they can: see _rows.
_ROWS: Final = 0.1
_OF_SPOOL: Final = frozenset(
    {"slow disk", "disk eio", "disk enospc", "disk short", "no dead letters", "requeue"}
)
#: What concerns dead letters, and what makes some.
_OF_DEAD_LETTERS: Final = frozenset({"no dead letters", "requeue"})
_REFUSALS: Final = ("no right to write", "too large", "clock jump", "delete topic")
#: What a fault may wait for, in place of its time: then it comes right after that.
MOMENTS: Final = (
    "a batch is stored",
    "a batch is acknowledged",
    "a batch is sent again",
    "a request waits",
    "a request waits for memory",
    "a file is synced",
    "a file is renamed",
    "a dead letter is stored",
)
#: Those that a sidecar without a spool has.
_MOMENTS_OF_ALL: Final = MOMENTS[:5]
#: When a fault comes for which any other time is mostly too early.
_USUALLY: Final = {"requeue": "a dead letter is stored", "delete topic": "a request waits for memory"}
#: What may come with it.
_AMID_A_REQUEUE: Final = ("disk eio", "disk enospc", "power cut", "sigkill")
_OPERATIONS: Final = (
    "write",
    "write",
    "fsync",
    "fsync",
    "fsync",
    "create",
    "sync_folder",
    "rename",
    "truncate",
    "unlink",
)


def plan_of(seed: int) -> Plan:
    """Draws the plan of a seed."""
    random = Random(f"plan {seed}")
    batch_bytes = random.choice((200, 600, 2_000, 16_384))
    kafka = {
        "bootstrap.servers": "10.0.0.1:9001",
        "linger.ms": str(random.choice((0, 0, 0, 0, 5, 300))),
        "batch.size": str(batch_bytes),
        "buffer.memory": str(random.choice((max(2 * batch_bytes, 5_000), 20_000, 60_000, 1_000_000))),
        "request.timeout.ms": str(random.choice((300, 1_000))),
        "delivery.timeout.ms": str(random.choice((1_500, 3_000, 8_000))),
        "max.block.ms": str(random.choice((500, 2_000))),
        "retry.backoff.ms": "20",
        "retry.backoff.max.ms": "200",
        "reconnect.backoff.ms": "20",
        "reconnect.backoff.max.ms": "200",
        "metadata.max.age.ms": str(random.choice((500, 5_000, 300_000))),
        "socket.connection.setup.timeout.ms": "300",
        "socket.connection.setup.timeout.max.ms": "600",
        "compression.type": random.choice(("none", "none", "lz4")),
        "max.in.flight.requests.per.connection": str(random.choice((5, 5, 5, 1, 2))),
        "retries": random.choice(("2147483647",) * 3 + ("1", "1", "2")),
        "acks": random.choice(("all",) * 12 + ("1",)),
    }
    if kafka["acks"] == "1" or random.random() < 0.15:
        kafka["enable.idempotence"] = "false"
        kafka["max.in.flight.requests.per.connection"] = random.choice(("1", "5"))
        kafka["retries"] = random.choice(("2147483647", "0", "0", "1"))
    has_spool = random.random() < 0.7
    topics = [
        TopicPlan(
            name,
            random.choice((1, 1, 2, 3)),
            random.choice((1, 2, 2)),
            random.random() < 0.05,
            0 if random.random() < 0.9 else random.randint(0, 1_500),
            random.randint(0, BUSY_MS) if random.random() < 0.25 else None,
            random.random() < 0.6,
        )
        for name in ("orders", "payments")[: random.choice((1, 1, 2))]
    ]
    if (
        any(topic.grows_when_full and topic.grows_ms is not None for topic in topics)
        and random.random() < 0.7
    ):
        kafka["buffer.memory"] = str(max(2 * batch_bytes, 5_000))
    settings = {
        "drain_timeout_ms": random.choice((300, 2_000)),
        "spool_topic_wait_ms": random.choice((1_000, 1_000, 3_000)),
        "spool_max_bytes": random.choice((1, 256)) * 1_048_576,
        "max_waiting_requests": random.choice((10_000,) * 19 + (4,)),
        "max_waiting_bytes": random.choice((67_108_864,) * 19 + (3_000,)),
    }
    sidecars = random.choice((1, 1, 1, 2))
    kinds = _kinds(random, has_spool=has_spool)
    if _OF_DEAD_LETTERS.union(_REFUSALS) & set(kinds):
        settings["spool_topic_wait_ms"] = 1_000  # each record may have to wait for it, one after the other
    floods = has_spool and Random(f"flood {seed}").random() < _FLOODS
    large = Random(f"a flood of large records {seed}")
    if has_spool and not floods and large.random() < _LARGE_FLOODS:
        floods = True
        topics[0] = topics[0]._replace(created_ms=_FLOODED_MS)
        kafka["buffer.memory"] = "1000000"
        settings |= {"spool_max_bytes": 256 * 1_048_576, "max_waiting_bytes": 67_108_864}
        requests = [_enlarged(one, large) for one in _flood(large, topics[0], kafka)]
    elif floods:
        topics[0] = topics[0]._replace(created_ms=_FLOODED_MS)
        requests = _flood(random, topics[0], kafka)
    else:
        requests = _requests(random, topics, kafka, sidecars, kinds, has_spool=has_spool)
    sync_ms = random.choice((0, 0, 2, 10))
    faults = _faults(random, kinds, has_spool=has_spool)
    # Drawn apart, so that seeds that others have looked at stay what they are.
    more = Random(f"rows {seed}")
    requests = [one if one.leaves_after_ms is None else _left_once(one, more) for one in requests]
    faults = sorted(
        [*faults, *_rows(seed, more, kafka, requests, has_spool=has_spool)], key=lambda one: one.at_ms
    )
    pipeline = Random(f"pipeline {seed}")
    is_pipeline = not floods and pipeline.random() < _PIPELINES
    if is_pipeline:
        kafka |= _IN_A_PIPELINE
        kafka["request.timeout.ms"] = pipeline.choice(("300", "1000", "1000"))
        kafka["delivery.timeout.ms"] = pipeline.choice(("1500", "1500", "8000"))
        kafka["metadata.max.age.ms"] = pipeline.choice(("200", "200", "300000"))
        topics = [topics[0]._replace(partitions=1)]
        requests = _pipeline(pipeline, topics[0], kafka)
        faults = [_in_a_pipeline(pipeline) for _ in range(pipeline.randint(4, 12))]
    repeats = Random(f"repeats {seed}")
    if repeats.random() < _REPEATS:
        at_ms = repeats.choice(requests).at_ms
        requests = [_repeated(one) if 0 <= one.at_ms - at_ms < _STORM_MS else one for one in requests]
        faults += [FaultPlan(at_ms, "stuck broker", broker_id, 3 * _STORM_MS) for broker_id in (1, 2, 3)]
    slow = Random(f"slow spool {seed}")
    if has_spool and not is_pipeline and slow.random() < _SLOW_SPOOLS:
        requests = [_spooled_slowly(one, slow) for one in requests]
        for _ in range(4):
            faults += _amid_the_spool(slow, slow.choice(requests).at_ms)
    pause = Random(f"pause {seed}")
    if not (floods or is_pipeline) and pause.random() < _PAUSES:
        kafka |= {"metadata.max.idle.ms": str(_FORGET_MS), "metadata.max.age.ms": "500"}
        later = _requests(pause, topics, kafka, sidecars, kinds, has_spool=has_spool)[:_AFTER_A_PAUSE]
        # As few before it: a broker knows the last five batches of a partition.
        requests = requests[: pause.choice((_AFTER_A_PAUSE, len(requests)))]
        requests += [_moved(one, _PAUSE_MS, len(requests)) for one in later]
    shrinks = Random(f"topics that shrink {seed}")
    if not (floods or is_pipeline) and shrinks.random() < _SHRINKS:
        kafka |= {
            "buffer.memory": str(max(2 * batch_bytes, 5_000)),
            "delivery.timeout.ms": str(_SHRUNK_MS),
            "request.timeout.ms": "300",
            "linger.ms": "0",
            "max.block.ms": "2000",
        }
        topics[0] = topics[0]._replace(partitions=3, created_ms=0, grows_ms=None)
        requests = [_with_partitions(one, topics[0].name, shrinks) for one in requests]
        for _ in range(3):
            faults += _shrinking(shrinks)
    ahead = Random(f"ahead of a partition {seed}")
    if not (floods or is_pipeline) and ahead.random() < _AHEAD:
        kafka |= {"buffer.memory": "1000000", "acks": "all", "enable.idempotence": "true"}
        kafka["retries"] = "2147483647"
        settings |= {"max_waiting_requests": 10_000, "max_waiting_bytes": 67_108_864}
        grows_ms = ahead.randint(_LONGEST_AHEAD_MS, BUSY_MS)
        topics[0] = topics[0]._replace(created_ms=0, grows_ms=grows_ms, grows_when_full=False)
        came = _ahead(ahead, topics[0], grows_ms, kafka)
        requests += [_moved(one, 0, len(requests)) for one in came]
    alone = Random(f"left alone {seed}")
    if alone.random() < _LEFT_ALONE:
        record = RecordPlan("r0.0", None, topics[0].partitions + 5, 20)
        first = plain_request(0, 0, topics[0].name, [record], kafka)._replace(leaves_after_ms=60)
        requests += [_moved(first, at_ms, len(requests) + n) for n, at_ms in enumerate(_ALONE_MS)]
    tenants = Random(f"tenants {seed}")
    if tenants.random() < _TENANTS:
        requests = _of_tenants(requests, tenants)
    empties = Random(f"values that are empty {seed}")
    if empties.random() < _EMPTIES:
        requests = [_emptied(one, empties) for one in requests]
    doubled = Random(f"doubled {seed}")
    if doubled.random() < _DOUBLED:
        requests = [_doubled(one, doubled) for one in requests]
    return Plan(seed, kafka, settings, has_spool, sidecars, sync_ms, topics, requests, faults)


def _emptied(request: RequestPlan, random: Random) -> RequestPlan:
    """Perhaps its records have empty values, and keys of their own."""
    if request.form == "octet" or random.random() < 0.7:
        return request
    records = [record._replace(key=record.name, size=0) for record in request.records]
    return request._replace(records=records)


def _doubled(request: RequestPlan, random: Random) -> RequestPlan:
    """Perhaps it comes two or three times at once, under one key."""
    if request.form == "ndjson" or request.has_token or random.random() < 0.5:
        return request
    return request._replace(has_key=True, doubles=random.choice((1, 2)))


def _of_tenants(requests: Sequence[RequestPlan], random: Random) -> list[RequestPlan]:
    """Gives requests to two callers with tokens. What each has under a key, the other has under the same."""
    numbers: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    changed: list[RequestPlan] = []
    for request in requests:
        caller = random.choice(("c0", "c1"))
        has_key = request.form != "ndjson" and (request.has_key or random.random() < 0.5)
        key = None
        if has_key:
            numbers[request.topic][caller] += 1
            key = numbers[request.topic][caller]
        changed.append(request._replace(caller=caller, has_token=True, has_key=has_key, key=key))
    return changed


def _moved(request: RequestPlan, by_ms: int, by_number: int) -> RequestPlan:
    """Returns the request at a later time, with names of its own."""
    number = request.number + by_number
    records = [record._replace(name=f"r{number}.{index}") for index, record in enumerate(request.records)]
    return request._replace(number=number, at_ms=request.at_ms + by_ms, records=records)


def _repeated(request: RequestPlan) -> RequestPlan:
    """Its caller leaves at once, and comes again with the same key and a body that takes half of its time."""
    if request.form not in ("json", "octet") or not request.sets_times:
        return request
    timeout_ms = min(request.timeout_ms, 2 * _STORM_MS)
    return request._replace(
        has_key=True,
        timeout_ms=timeout_ms,
        pauses_ms=[0],
        leaves_after_ms=30,
        leaves_tries=1,
        retries=1,
        retry_after_ms=20,
        retry_sidecar=request.sidecar,
        retry_pauses_ms=[0, timeout_ms // 2],
    )


def _spooled_slowly(request: RequestPlan, random: Random) -> RequestPlan:
    """Perhaps it goes to the spool, and its body takes half of its time."""
    if request.form not in ("json", "spool") or request.sidecar or not request.sets_times:
        return request
    timeout_ms = random.choice((200, 700))
    pauses_ms = random.choice(([0], [0, timeout_ms // 2]))
    return request._replace(form="spool", timeout_ms=timeout_ms, pauses_ms=pauses_ms, retry_sidecar=0)


def _amid_the_spool(random: Random, at_ms: int) -> Iterator[FaultPlan]:
    """Ends the process while the disk has a part of what the spool writes, or has failed to."""
    dies = FaultPlan(
        random.choice((2, 20, 100, 300)), random.choice(("power cut", "sigkill", "sigterm")), 2, 100
    )
    if random.random() < 0.5:
        yield FaultPlan(at_ms, "slow disk", 2, 900, then=dies)
        return
    if random.random() < 0.5:
        yield FaultPlan(at_ms, "no new files", 2, 1_500)
    yield FaultPlan(at_ms, "disk eio", 2, 0, random.choice(("fsync", "write")), then=dies)


def _left_once(request: RequestPlan, random: Random) -> RequestPlan:
    """Perhaps its caller comes again and stays, but sends slowly, while the first try is under way."""
    if random.random() < 0.3:
        return request
    slow = (request.pauses_ms, [0, request.timeout_ms // 2])
    return request._replace(leaves_tries=1, retry_pauses_ms=random.choice(slow))


def _rows(
    seed: int,
    random: Random,
    kafka: Mapping[str, str],
    requests: Sequence[RequestPlan],
    *,
    has_spool: bool,
) -> Iterator[FaultPlan]:
    """Yields faults that matter only one behind the other, and seldom come so by themselves.

    And those that were added later, drawn apart, too.
    """
    if random.random() < _ROWS:
        # Batches are stored without an answer; when they come again, the right to write is missing once.
        for_ms = int(kafka["request.timeout.ms"]) * 9 // 10
        once = FaultPlan(random.randint(0, for_ms), "no right to write", 1, 2_000, "once")
        at_ms = max(random.choice(requests).at_ms - 1, 0)  # most come several at a time
        yield FaultPlan(at_ms, "answers vanish", 1, for_ms, when="a batch is stored", then=once)
    broken = Random(f"unknown errors {seed}")
    if broken.random() < _ROWS:
        for _ in range(broken.randint(1, 3)):
            yield FaultPlan(broken.randint(0, BUSY_MS), "unknown error", broken.randint(1, 3), 0)
    if has_spool and random.random() < _ROWS:
        # A file fails, none can begin, and the process dies: the next one finds what the file has.
        at_ms = random.randint(0, BUSY_MS)
        yield FaultPlan(at_ms, "no new files", 2, 1_500)
        dies = FaultPlan(random.choice((5, 50, 200)), "sigkill", 2, random.randint(0, 200))
        yield FaultPlan(at_ms, "nothing", 2, 0, when="no file can begin", then=dies)


def _flood(random: Random, topic: TopicPlan, kafka: Mapping[str, str]) -> list[RequestPlan]:
    """More records for one topic, before it is there, than the spool's delivery has in memory of one."""
    keys = random.choice(((None,), ("k1",), (None, "k1", "k2")))
    return [
        RequestPlan(
            number,
            random.randint(0, _FLOODED_MS) if number < _FLOOD // 2 else random.randint(0, BUSY_MS),
            "c0",
            topic.name,
            "spool",
            [RecordPlan(f"r{number}.{index}", random.choice(keys), None, 20) for index in range(60)],
            int(kafka["delivery.timeout.ms"]),
            int(kafka["max.block.ms"]),
            random.random() < 0.2,
            [0],
            None,
            random.choice((0, 2)),
            300,
        )
        for number in range(_FLOOD)
    ]


def _enlarged(request: RequestPlan, random: Random) -> RequestPlan:
    """Fewer records, of a size of which few are in one read of the disk."""
    count = random.choice((1, 2, 3))
    records = [record._replace(size=random.choice((20_000, 60_000))) for record in request.records[:count]]
    return request._replace(records=records)


def _with_partitions(request: RequestPlan, topic: str, random: Random) -> RequestPlan:
    """It may wait for memory as long as for its end; half of those for the topic name partitions."""
    timeout_ms = min(request.timeout_ms, _SHRUNK_MS)
    request = request._replace(timeout_ms=timeout_ms, max_block_ms=2_000)
    if request.topic != topic or random.random() < 0.5:
        return request
    records = [record._replace(partition=random.choice((0, 1, 2))) for record in request.records]
    return request._replace(records=records)


def _shrinking(random: Random) -> Iterator[FaultPlan]:
    """No broker answers, so that requests wait for memory; then the topic is made again, mostly smaller."""
    at_ms = random.randint(0, BUSY_MS)
    for broker_id in (1, 2, 3):
        yield FaultPlan(at_ms, "stuck broker", broker_id, random.choice((200, 500)))
    yield FaultPlan(at_ms, "delete topic", 1, random.choice((10, 100)), when="a request waits for memory")


def _pipeline(random: Random, topic: TopicPlan, kafka: Mapping[str, str]) -> list[RequestPlan]:
    """Many small requests for one partition, each a batch or two."""
    key = random.choice((None, "k1"))
    partition = None if key else 0
    requests: list[RequestPlan] = []
    at_ms = 0
    while at_ms < BUSY_MS:
        number = len(requests)
        records = [
            RecordPlan(f"r{number}.{index}", key, partition, random.choice((20, 60)))
            for index in range(random.choice((1, 1, 2, 5)))
        ]
        requests.append(plain_request(number, at_ms, topic.name, records, kafka))
        at_ms += random.choice((0, 5, 20, 60))
    return requests


def _ahead(random: Random, topic: TopicPlan, at_ms: int, kafka: Mapping[str, str]) -> list[RequestPlan]:
    """Requests for the partition that the topic gets then, from some time before until it is known."""
    apart_ms = random.choice((2, 3, 4))  # a loop that is kept waiting now and then keeps up with these
    record = RecordPlan("r0.0", None, topic.partitions, 20)
    first = plain_request(0, at_ms - random.randint(0, _LONGEST_AHEAD_MS), topic.name, [record], kafka)
    return [_moved(first, number * apart_ms, number) for number in range(_REQUESTS_AHEAD)]


def _in_a_pipeline(random: Random) -> FaultPlan:
    """Often the leader moves while answers are missing: then two brokers have batches of the partition."""
    missing = random.random() < 0.5
    kind = random.choice(("answers vanish", "both ways vanish") if missing else _FAULTS_OF_A_PIPELINE)
    when = random.choice(("", "a batch is stored", "a batch is acknowledged", "a batch is sent again"))
    for_ms = random.randint(FAULTS[kind][1] // 10, FAULTS[kind][1])
    after_ms = random.choice((5, 30, 100))
    then = FaultPlan(after_ms, "move leader", 1, 0)
    if random.random() < 0.3:
        then = FaultPlan(after_ms, "no right to write", 1, 2_000, "once")
    return FaultPlan(
        random.randint(0, BUSY_MS),
        kind,
        random.randint(1, 3),
        for_ms,
        when=random.choice(("a batch is stored", "a batch is acknowledged")) if missing else when,
        then=then if missing or random.random() < 0.5 else None,
    )


def _requests(
    random: Random,
    topics: Sequence[TopicPlan],
    kafka: Mapping[str, str],
    sidecars: int,
    kinds: Sequence[str],
    *,
    has_spool: bool,
) -> list[RequestPlan]:
    """Callers in bursts: several requests of the same moment are batches in flight together."""
    habits = {
        "form": random.choice((FORMS, ("json",), ("json", "ndjson"), ("json", "spool"), ("spool",))),
        "slow": random.random() < 0.3,
        "leave": random.random() < 0.3,
        "keys": random.random() < 0.5,
        "retry": random.random() < 0.7,
        "deadlines": random.random() < 0.6,
        "large": random.random() < 0.3,
        "many topics": random.random() < 0.3,
        # For partitions that are not there: yet, any more, or ever.
        "beyond": random.random() < 0.15,
        "ahead": random.random() < 0.5,
    }
    if _OF_DEAD_LETTERS & set(kinds):
        habits["form"] = random.choice((FORMS, ("json", "spool"), ("spool",), ("spool",)))
        habits["beyond"] = random.random() < 0.6
    callers = [f"c{number}" for number in range(random.choice((1, 2, 4)))]
    most_ms, block_ms = int(kafka["delivery.timeout.ms"]), int(kafka["max.block.ms"])
    requests: list[RequestPlan] = []
    at_ms = 0
    number = 0
    total = random.choice((30, 80, 150))
    while number < total and at_ms < BUSY_MS:
        at_ms += int(random.expovariate(total / BUSY_MS * 0.35))
        for _ in range(random.choice((1, 1, 2, 6))):
            topic = random.choice(topics)
            names_topics = habits["many topics"] and random.random() < 0.5
            form = random.choice(habits["form"])  # type: ignore[arg-type]
            sidecar = random.randrange(sidecars)
            if form == "spool" and (sidecar or not has_spool):
                form = "json"
            count = 1 if form == "octet" else random.choice((1, 1, 2, 5, 20))
            keys = random.choices((None, "k1", "k2", "k3"), k=random.choice((1, 1, 3)))
            partitions: list[int | None] = [None]
            if topic.grows_ms is not None and habits["ahead"] and random.random() < 0.4:
                keys, partitions = [None], [topic.partitions]
            elif habits["beyond"] and random.random() < 0.3:
                keys, partitions = [None], random.choices(range(topic.partitions + 1), k=3)
            elif keys == [None] and random.random() < 0.4:
                # Also the one that it does not have yet.
                known = topic.partitions + (topic.grows_ms is not None)
                partitions = random.choices(range(known), k=random.choice((1, 1, 3)))
            sizes = (20, 60, 200, 900) if habits["large"] else (20, 60)
            names_topics = names_topics and form in ("json", "spool")
            records = [
                RecordPlan(
                    f"r{number}.{index}",
                    random.choice(keys),
                    random.choice(partitions),
                    random.choice(sizes),
                    random.choice(topics).name if names_topics else "",
                )
                for index in range(count)
            ]
            sets_times = random.random() < 0.9
            timeout_ms = random.choice((most_ms, 50, 200, 700, 1_500)) if habits["deadlines"] else most_ms
            requests.append(
                RequestPlan(
                    number,
                    at_ms,
                    random.choice(callers),
                    "" if names_topics else topic.name,
                    form,
                    records,
                    min(timeout_ms, most_ms) if sets_times else most_ms,
                    random.choice((block_ms, 100, 400)) if habits["deadlines"] and sets_times else block_ms,
                    form != "ndjson" and bool(habits["keys"]) and random.random() < 0.6,
                    [random.choice((0, 5, 60, 300)) for _ in range(random.choice((1, 2, 3)))]
                    if habits["slow"] and random.random() < 0.3
                    else [0],
                    random.choice((1, 10, 60, 200)) if habits["leave"] and random.random() < 0.2 else None,
                    random.choice((1, 2, 3)) if habits["retry"] else 0,
                    random.choice((0, 20, 300)),
                    sidecar,
                    sidecar if form == "spool" else random.randrange(sidecars),
                    sets_times,
                )
            )
            number += 1
    return requests


def _kinds(random: Random, *, has_spool: bool) -> list[str]:
    """Chooses kinds of faults. What concerns dead letters is of no use where nothing makes some.

    And where something does, they are often put back.
    """
    kinds = [kind for kind in FAULTS if has_spool or kind not in _OF_SPOOL]
    chosen = set(random.sample(kinds, random.choice((0, 1, 2, 3, 4, 4, 6, 8))))
    if has_spool and chosen.intersection(_REFUSALS) and random.random() < 0.3:
        chosen.add("requeue")
    if chosen & _OF_DEAD_LETTERS:
        chosen.add(random.choice(_REFUSALS))
    return sorted(chosen)


def _faults(random: Random, chosen: Sequence[str], *, has_spool: bool) -> list[FaultPlan]:
    kinds = [kind for kind in FAULTS if has_spool or kind not in _OF_SPOOL]
    faults: list[FaultPlan] = []
    # In half of the seeds faults come together: one that meets another finds most. Also at the very start.
    storms_ms = [
        random.randint(0, BUSY_MS) if random.random() < 0.8 else 0 for _ in range(random.choice((0, 0, 1, 2)))
    ]
    # In others each waits for a moment, or has another one behind it.
    moments, follows = random.choice((0.0, 0.0, 0.5)), random.choice((0.0, 0.0, 0.5))

    def fault(kind: str, at_ms: int, target: int) -> FaultPlan:
        longest_ms = FAULTS[kind][1]
        for_ms = random.randint(longest_ms // 10, longest_ms) if longest_ms else 0
        operation = random.choice(_OPERATIONS) if kind in ("disk eio", "disk enospc") else ""
        return FaultPlan(at_ms, kind, target, for_ms, operation)

    for kind in chosen:
        for _ in range(random.randint(1, FAULTS[kind][0])):
            at_ms = random.randint(0, BUSY_MS)
            if storms_ms:
                at_ms = min(random.choice(storms_ms) + random.randint(0, _STORM_MS), BUSY_MS)
            one = fault(kind, at_ms, random.randint(1, 3))
            if random.random() < moments:
                one = one._replace(when=random.choice(MOMENTS if has_spool else _MOMENTS_OF_ALL))
            elif kind in _USUALLY and random.random() < 0.6:
                one = one._replace(when=_USUALLY[kind])
            if kind in _REFUSALS and "no dead letters" in chosen and random.random() < 0.7:
                one = one._replace(then=fault("no dead letters", random.choice((0, 500, 900)), one.target))
            elif kind == "requeue" and random.random() < 0.5:
                one = one._replace(then=fault(random.choice(_AMID_A_REQUEUE), 0, one.target))
            elif random.random() < follows:
                after_ms = random.choice((0, 5, 30, 100, 500))
                one = one._replace(then=fault(random.choice(kinds), after_ms, one.target))
            faults.append(one)
    return sorted(faults, key=lambda one: one.at_ms)
