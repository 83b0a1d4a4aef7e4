"""Faults that are planted in simulated brokers, and what an operator should conclude of each.

`FAULTS` have a conclusion of `diagnosis.py`, the alert that fires if the fault lasts, the dashboard's panel
that shows it, and words of /v1/status. `PAIRS` are planted together. `LOOK_ALIKES` and `QUIET` are no faults.
`planted_in_sidecar.py` has faults of the sidecar's own parts and files, for the other alerts.
Brokers 1, 2 and 3 lead two partitions of `orders` each. `docs/alerts.md` has the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from client_core import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.testing.metadata_cache import AliveBroker, MetadataCache
from client_core.testing.produce import ProduceFault
from tests.support.fake_cluster.in_process import HOST
from tests.support.simulated_sidecar import api_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.operations.watched import Watched

TOPIC: Final = "orders"
PARTITIONS: Final = 6
ALL: Final = (1, 2, 3)
_SLOW_MS: Final = 3_000
OFTEN: Final = 10**9
#: The partitions that broker 2 leads.
_OF_2: Final = (1, 4)


def produce(watched: Watched, partition: int, *, topic: str = TOPIC, value: str = "x" * 100) -> None:
    record = {"value": value, "partition": partition}
    watched.call("POST", f"/v1/topics/{topic}/records", json={"value_format": "text", "records": [record]})


def usual_load(watched: Watched, second: int) -> None:
    """Three records a second, one for each broker, and a look-up."""
    for broker in range(3):
        produce(watched, broker + 3 * (second % 2))
    watched.call("GET", f"/v1/topics/{TOPIC}")


@dataclass(frozen=True, slots=True)
class Planted:
    """One case. `plant` begins it and `heal` ends it; `since_start`: planted before the sidecar's start.

    `found` is the conclusion. `alert` fires within three minutes, or later if `is_late` (ProduceErrors waits
    for delivery.timeout.ms and five minutes: test_every_alert.py); None: there is none. `status` has words
    that `pilotfish status` prints. If it is None, `member` of /v1/status has the fault; if that is empty, the
    status can't know it, and `why_not` says why.
    """

    name: str
    plant: Callable[[Watched], None]
    heal: Callable[[Watched], None]
    found: str
    alert: str | None
    panel: str
    status: str | None
    is_late: bool = False
    since_start: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, int] = field(default_factory=dict)
    load: Callable[[Watched, int], None] = usual_load
    member: str = ""
    why_not: str = ""


def start(watched: Watched) -> None:
    """Makes the topic; partition n is led by broker n modulo 3, plus 1."""
    watched.controller.create_topic(
        TOPIC, partitions=PARTITIONS, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2
    )


# -- how ---------------------------------------------------------------------------------------------------


def _slow(broker: int, *, only_produce: bool) -> Callable[[Watched], None]:
    def plant(watched: Watched) -> None:
        watched.network.delay_ms = lambda broker_id, payload: (
            _SLOW_MS if broker_id == broker and (api_of(payload) is ApiKey.PRODUCE or not only_produce) else 0
        )

    return plant


def speed_up(watched: Watched) -> None:
    watched.network.delay_ms = lambda broker_id, payload: 0


def refuse(error: Errors, *partitions: int | None) -> Callable[[Watched], None]:
    def plant(watched: Watched) -> None:
        for partition in partitions or (None,):
            watched.brokers.state.produce_faults.append(
                ProduceFault(error.code, OFTEN, TOPIC, partition, is_appended=False)
            )

    return plant


def refuse_nothing(watched: Watched) -> None:
    watched.brokers.state.produce_faults.clear()


def down(*brokers: int, elect: bool) -> Callable[[Watched], None]:
    def plant(watched: Watched) -> None:
        for network in watched.networks:
            network.down |= set(brokers)
        for broker in brokers:
            if elect:
                watched.controller.broker_failed(broker)
            for network in watched.networks:
                network.end_connections_to(broker)

    return plant


def up(watched: Watched) -> None:
    for broker in sorted(watched.network.down):
        port = next(port for port, own in watched.brokers.ports.items() if own == broker)
        for network in watched.networks:
            network.down.discard(broker)
        if broker not in watched.controller.alive:
            cache = watched.brokers.state.caches[broker] = MetadataCache()
            watched.controller.broker_started(AliveBroker(broker, HOST, port), cache)


def _last_replica_down(watched: Watched) -> None:
    for partition in _OF_2:
        watched.controller.set_isr(TOPIC, partition, [2])
    down(2, elect=True)(watched)


def _unreachable(*brokers: int) -> Callable[[Watched], None]:
    def plant(watched: Watched) -> None:
        watched.network.unreachable = set(brokers)
        for broker in brokers:
            watched.network.end_connections_to(broker)

    return plant


def _reachable(watched: Watched) -> None:
    for broker in watched.network.unreachable:
        watched.network.end_connections_to(broker)
    watched.network.unreachable = set()


def _silent(*brokers: int) -> Callable[[Watched], None]:
    def plant(watched: Watched) -> None:
        watched.brokers.silent = set(brokers)

    return plant


def speak(watched: Watched) -> None:
    watched.brokers.silent = set()
    watched.brokers.silent_for = set()


def silence(api: ApiKey, *brokers: int) -> Callable[[Watched], None]:
    def plant(watched: Watched) -> None:
        watched.brokers.silent_for = {(broker, api) for broker in brokers}

    return plant


def _reject(watched: Watched) -> None:
    watched.network.rejecting = set(ALL)
    watched.network.disconnect_all()


def _accept(watched: Watched) -> None:
    watched.network.rejecting = set()


def _throttle(watched: Watched) -> None:
    watched.brokers.throttle_ms = 2_000


def _no_throttle(watched: Watched) -> None:
    watched.brokers.throttle_ms = 0


def _delete(watched: Watched) -> None:
    watched.controller.delete_topic(TOPIC)


def _stall(watched: Watched) -> None:
    watched.is_stalled = True


def _turn_again(watched: Watched) -> None:
    watched.is_stalled = False


def _no_producer_ids(watched: Watched) -> None:
    watched.brokers.state.init_producer_id_errors.extend([Errors.COORDINATOR_LOAD_IN_PROGRESS.code] * 100_000)


def _producer_ids(watched: Watched) -> None:
    watched.brokers.state.init_producer_id_errors.clear()


def expire_in(seconds: int) -> Callable[[Watched], None]:
    def plant(watched: Watched) -> None:
        expires_s = watched.clock.wall_ms() / 1000 + seconds
        watched.app.client_metrics.listener_expires_at_s = lambda: int(expires_s)

    return plant


def renew(watched: Watched) -> None:
    expire_in(90 * 24 * 3600)(watched)


def _flapping(watched: Watched, second: int) -> None:
    usual_load(watched, second)
    if 120 <= second < 900 and second % 6 == 0:
        watched.network.end_connections_to(2)


def _moving(watched: Watched, second: int) -> None:
    usual_load(watched, second)
    if 120 <= second < 900 and second % 10 == 0:
        for partition in range(PARTITIONS):
            watched.controller.move_leader(TOPIC, partition, 1 + (second // 10 + partition) % 3)


def _many_at_once(watched: Watched, second: int) -> None:
    usual_load(watched, second)
    if 120 <= second < 705:
        for number in range(12):
            produce(watched, number % PARTITIONS)


def _large_at_once(watched: Watched, second: int) -> None:
    usual_load(watched, second)
    if 120 <= second < 900:
        for number in range(6):
            produce(watched, number % PARTITIONS, value="y" * 5_000)


def _nothing(_: Watched) -> None:
    """The load itself is the fault, or there is none."""


# -- the faults ----------------------------------------------------------------------------------------------

_BY_BROKER: Final = "Produce requests by broker, p99"
_STATES: Final = "Connections by state"
_ENDED: Final = "Connections that ended"
_GIVEN_UP: Final = "Records given up and sent again"


def _refusing(error: Errors, *, is_retried: bool = True) -> Planted:
    return Planted(
        error.name,
        refuse(error),
        refuse_nothing,
        error.name,
        "ProduceErrors",
        _GIVEN_UP,
        error.name if is_retried else None,
        is_late=True,
        member="" if is_retried else "nodes[].last_failure.error",
    )


FAULTS: Final = (
    Planted(
        "slow disk of a broker",
        _slow(2, only_produce=True),
        speed_up,
        "broker 2 is slow",
        "ProduceSlow",
        _BY_BROKER,
        "node 2",
    ),
    Planted(
        "overloaded broker",
        _slow(3, only_produce=False),
        speed_up,
        "broker 3 is slow",
        "ProduceSlow",
        _BY_BROKER,
        "node 3",
    ),
    Planted(
        "broker that hangs",
        _silent(2),
        speak,
        "broker 2 does not answer",
        "ProduceErrors",
        "Requests in flight",
        "node 2",
        is_late=True,
    ),
    Planted(
        "broker that answers no produce",
        silence(ApiKey.PRODUCE, 3),
        speak,
        "broker 3 does not answer",
        "ProduceErrors",
        "Requests in flight",
        "node 3",
        is_late=True,
    ),
    Planted(
        "dead broker whose partitions have no other leader",
        _last_replica_down,
        up,
        "partitions have no leader",
        "LeaderlessPartitions",
        "Partitions without a leader",
        "for a leader",
    ),
    Planted(
        "one broker behind a firewall",
        _unreachable(2),
        _reachable,
        "broker 2 can't be reached: setup_timeout",
        "ProduceErrors",
        _STATES,
        "node 2",
        is_late=True,
    ),
    Planted(
        "all brokers refuse connections",
        down(*ALL, elect=False),
        up,
        "no broker can be reached: refused",
        "NoBrokerConnected",
        "Without a broker",
        "refused",
    ),
    Planted(
        "all brokers behind a firewall",
        _unreachable(*ALL),
        _reachable,
        "no broker can be reached: setup_timeout",
        "NoBrokerConnected",
        "Without a broker",
        "set up",
    ),
    Planted(
        "all brokers hang",
        _silent(*ALL),
        speak,
        "no broker can be reached: request_timeout",
        "NoBrokerConnected",
        "Without a broker",
        "set up",
    ),
    Planted(
        "wrong password",
        _reject,
        _accept,
        "credentials are rejected",
        "AuthenticationFailed",
        _ENDED,
        "metadata can't be refreshed",
    ),
    Planted(
        "no broker since the start",
        down(*ALL, elect=False),
        up,
        "there is no metadata: refused",
        "MetadataMissing",
        "Without metadata",
        "has answered yet",
        since_start=True,
    ),
    Planted(
        "wrong password since the start",
        _reject,
        _accept,
        "credentials are rejected",
        "AuthenticationFailed",
        _ENDED,
        "uthentication",
        since_start=True,
    ),
    _refusing(Errors.NOT_ENOUGH_REPLICAS),
    _refusing(Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    _refusing(Errors.KAFKA_STORAGE_ERROR),
    _refusing(Errors.NOT_LEADER_OR_FOLLOWER),
    _refusing(Errors.CORRUPT_MESSAGE),
    _refusing(Errors.MESSAGE_TOO_LARGE, is_retried=False),
    _refusing(Errors.TOPIC_AUTHORIZATION_FAILED, is_retried=False),
    _refusing(Errors.INVALID_RECORD, is_retried=False),
    _refusing(Errors.POLICY_VIOLATION, is_retried=False),
    Planted(
        "quota",
        _throttle,
        _no_throttle,
        "brokers throttle",
        None,
        "Throttling",
        None,
        member="nodes[].throttle_left_ms",
    ),
    Planted(
        "no producer id",
        _no_producer_ids,
        _producer_ids,
        "COORDINATOR_LOAD_IN_PROGRESS",
        "ProduceErrors",
        _GIVEN_UP,
        "producer id",
        since_start=True,
        is_late=True,
    ),
    Planted(
        "deleted topic",
        _delete,
        start,
        "a topic does not exist",
        None,
        "Answers by status",
        "which the brokers do not list",
    ),
    Planted(
        "connections that end again and again",
        _nothing,
        _nothing,
        "connections to broker 2 end often: closed",
        None,
        _ENDED,
        "closed the connection",
        load=_flapping,
    ),
    Planted(
        "leaders that move again and again",
        _nothing,
        _nothing,
        "leaders move often",
        None,
        "Changes",
        None,
        load=_moving,
        member="leader_changes",
    ),
    Planted(
        "more callers than the sidecar admits",
        _slow(2, only_produce=False),
        speed_up,
        "too many requests wait",
        "RequestsRefused",
        "Refused requests",
        "node 2",
        is_late=True,
        settings={"max_waiting_requests": 8},
        load=_many_at_once,
    ),
    Planted(
        "more records than buffer.memory",
        _slow(1, only_produce=False),
        speed_up,
        "buffer.memory is full",
        "BufferExhausted",
        "buffer.memory in use",
        "buffer.memory",
        kafka={
            "buffer.memory": "60000",
            "max.block.ms": "5000",
            "max.in.flight.requests.per.connection": "1",
        },
        load=_large_at_once,
    ),
    Planted(
        "I/O thread that hangs",
        _stall,
        _turn_again,
        "the poll loop is stalled",
        "PollLoopStalled",
        "Poll loop age",
        "wait in batches",
    ),
    Planted(
        "certificate that expires",
        expire_in(3_600),
        renew,
        "a certificate expires",
        "CertExpiring",
        "Certificate expires in",
        None,
        why_not="it has no certificates",
    ),
)

#: Two of FAULTS at a time, by name.
PAIRS: Final = (
    ("slow disk of a broker", "MESSAGE_TOO_LARGE"),
    ("broker that hangs", "certificate that expires"),
    ("all brokers refuse connections", "certificate that expires"),
    ("one broker behind a firewall", "TOPIC_AUTHORIZATION_FAILED"),
    ("dead broker whose partitions have no other leader", "quota"),
)


def _restarts(watched: Watched, second: int) -> None:
    """Each broker is restarted once, and its leaders move meanwhile: a rolling restart."""
    usual_load(watched, second)
    for broker, at in ((1, 130), (2, 180), (3, 230)):
        if second == at:
            down(broker, elect=True)(watched)
        elif second == at + 15:
            up(watched)


def _idle_ends(watched: Watched, second: int) -> None:
    usual_load(watched, second)
    if second == 200:
        watched.network.disconnect_all()


def _typing_errors(watched: Watched, second: int) -> None:
    usual_load(watched, second)
    if second >= 120 and second % 10 == 0:
        watched.call("GET", "/v1/topics/ordres")


def _short_outage(watched: Watched, second: int) -> None:
    usual_load(watched, second)
    if second == 150:
        down(*ALL, elect=False)(watched)
    elif second == 156:
        up(watched)


def _rebalance(watched: Watched, second: int) -> None:
    usual_load(watched, second)
    if second == 150:
        for partition in range(PARTITIONS):
            watched.controller.move_leader(TOPIC, partition, 1 + (partition + 1) % 3)


def no_load(_: Watched, __: int) -> None:
    """Nobody asks for anything."""


def _look_ups(watched: Watched, second: int) -> None:
    watched.call("GET", f"/v1/topics/{TOPIC}/leader", params={"partition": second % PARTITIONS})


def _bursts(watched: Watched, second: int) -> None:
    if second % 60 == 0:
        for number in range(60):
            produce(watched, number % PARTITIONS)


def _large_records(watched: Watched, second: int) -> None:
    produce(watched, second % PARTITIONS, value="z" * 200_000)


def _rarely(watched: Watched, second: int) -> None:
    if second % 45 == 0:
        produce(watched, second % PARTITIONS)


def _no_fault(name: str, load: Callable[[Watched, int], None]) -> Planted:
    return Planted(name, _nothing, _nothing, "", None, "", None, load=load)


LOOK_ALIKES: Final = (
    _no_fault("rolling restart", _restarts),
    _no_fault("brokers end idle connections", _idle_ends),
    _no_fault("a caller asks for a topic that does not exist", _typing_errors),
    _no_fault("outage of six seconds", _short_outage),
    _no_fault("leaders are balanced once", _rebalance),
)
QUIET: Final = (
    _no_fault("nobody asks", no_load),
    _no_fault("look-ups only", _look_ups),
    _no_fault("a burst each minute", _bursts),
    _no_fault("large records", _large_records),
    _no_fault("a record now and then", _rarely),
)
