"""Each cause of a timeout has one name, from the broker's error to the runbook.

One sidecar process in front of fake brokers, one broker for each cause. Every cause is planted, and then read
where an operator or a caller meets it: the HTTP answers of the native API and of each dialect, the metrics,
`/v1/status` and `pilotfish status`, the log, and the row of docs/alerts.md, whose alert exists. No cause and
no way of producing is left out: those are all that the OpenAPI document describes.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner

from client_core import (
    Errors,
    KafkaProducer,
    NoBrokersError,
    ProducerConfig,
    ProducerRecord,
    TimeoutError,
)
from client_core.errors import SslAuthenticationError
from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster, Hold, SaslDemand, TopicConfig
from client_core.testing.free_ports import free_ports
from service.__main__ import main
from service.base.settings import DIALECTS
from service.dialects.table import dialects_of
from service.process.admin import make_registry
from tests.support.documented_requests import documented_requests
from tests.support.http_app import HttpApp
from tests.support.sidecar import Sidecar
from tests.support.simulated_sidecar import SimulatedSidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    import httpx

    from tests.support.documented_requests import DocumentedRequest

ROOT: Final = Path(__file__).parents[3]
ALERTS_PAGE: Final = (ROOT / "docs" / "alerts.md").read_text()
RULES: Final = (ROOT / "helm" / "pilotfish" / "files" / "rules.yaml").read_text()

ONE: Final = [{"value": "x", "partition": 0}]
RIGHT: Final = SaslDemand(passwords={"pilotfish": "right"})
CHANGED: Final = SaslDemand(passwords={"pilotfish": "another"})
DELIVERY_TIMEOUT_MS: Final = 3_000
KAFKA: Final = {
    "delivery.timeout.ms": str(DELIVERY_TIMEOUT_MS),
    "request.timeout.ms": "2900",
    "linger.ms": "0",
    "retry.backoff.ms": "20",
    "retry.backoff.max.ms": "100",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "100",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="pilotfish" password="right";',
}


@dataclass(frozen=True, slots=True)
class Case:
    """A cause; `plant` makes it happen for the topic of a broker. `is_sent`: attempts fail with it."""

    cause: Errors
    plant: Callable[[FakeCluster, str, int], Hold | None]
    is_sent: bool = True
    node: bool = True

    @property
    def topic(self) -> str:
        return self.cause.name.lower()


def _few_in_sync(cluster: FakeCluster, topic: str, broker: int) -> None:
    cluster.set_config(topic, TopicConfig(min_insync_replicas=2))
    cluster.set_isr(topic, 0, [broker])


def _failing(error: Errors) -> Callable[[FakeCluster, str, int], None]:
    def plant(cluster: FakeCluster, topic: str, _: int) -> None:
        cluster.fail_next_produces(error, times=10_000, topic=topic)

    return plant


def _without_a_leader(cluster: FakeCluster, topic: str, _: int) -> None:
    cluster.move_leader(topic, 0, None)


def _gone(cluster: FakeCluster, _: str, broker: int) -> None:
    cluster.kill(broker, elect=False)


def _silent(cluster: FakeCluster, _: str, broker: int) -> Hold:
    return cluster.hold_next(ApiKey.PRODUCE, broker_id=broker, times=1_000)


def _throttled(cluster: FakeCluster, _: str, broker: int) -> None:
    """The first produce, which is acknowledged, brings the pause."""
    cluster.throttle_next(ApiKey.PRODUCE, 600_000, broker_id=broker)


CASES: Final = (
    Case(Errors.NOT_ENOUGH_REPLICAS, _few_in_sync),
    Case(Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _failing(Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND)),
    Case(Errors.LEADER_NOT_AVAILABLE, _without_a_leader, is_sent=False, node=False),
    Case(Errors.NETWORK_EXCEPTION, _gone, is_sent=False),
    Case(Errors.REQUEST_TIMED_OUT, _silent, is_sent=False),
    Case(Errors.THROTTLING_QUOTA_EXCEEDED, _throttled, is_sent=False),
    Case(Errors.KAFKA_STORAGE_ERROR, _failing(Errors.KAFKA_STORAGE_ERROR)),
    Case(Errors.NOT_LEADER_OR_FOLLOWER, _failing(Errors.NOT_LEADER_OR_FOLLOWER)),
    Case(Errors.UNKNOWN_TOPIC_OR_PARTITION, _failing(Errors.UNKNOWN_TOPIC_OR_PARTITION)),
)
#: Planted for the whole cluster: before the others, and after them.
FIRST: Final = Errors.COORDINATOR_LOAD_IN_PROGRESS
LAST: Final = Errors.SASL_AUTHENTICATION_FAILED
FIRST_TOPIC: Final = "first"


#: The names of all, in the order in which they are planted.
CAUSES: Final = (FIRST.name, *(case.cause.name for case in CASES), LAST.name)

#: Every request of the OpenAPI document by which records are produced, those of the dialects too. A record
#: of the spool is acknowledged by the disk, and a label of Dapr is no record.
WAYS: Final = tuple(
    request
    for request in documented_requests()
    if request.body is not None
    and "503" in request.statuses
    and request.operation_id not in ("lookUpLeaders", "spoolRecords", "putDaprLabel")
)


@contextmanager
def running(folder: Path) -> Iterator[tuple[FakeCluster, Sidecar]]:
    count = len(CASES)
    with FakeCluster(brokers=count) as cluster:
        cluster.demand_sasl(RIGHT)
        for broker, case in enumerate(CASES, 1):
            replicas = [broker, broker % count + 1]
            cluster.create_topic(case.topic, assignment=[replicas])
        cluster.create_topic(FIRST_TOPIC, assignment=[[1]])
        # With 100 ms between them they last for longer than the first produces.
        cluster.fail_next_init_producer_ids(FIRST, times=100)
        with Sidecar(
            folder,
            bootstrap_servers=cluster.bootstrap_servers,
            kafka=KAFKA,
            limits={"slow_after_ms": 100},
        ) as sidecar:
            yield cluster, sidecar


class Walk:
    """What each way of producing was answered for each cause, and what the status named meanwhile."""

    def __init__(self, cluster: FakeCluster, sidecar: Sidecar) -> None:
        self.cluster = cluster
        self.sidecar = sidecar
        #: By cause: the answer of the native API, and by way those of all.
        self.native: dict[str, httpx.Response] = {}
        self.answers: dict[tuple[str, str], httpx.Response] = {}

    def go(self) -> None:
        """Plants each cause, and produces in all ways."""
        sidecar, cluster = self.sidecar, self.cluster
        at_once = len(CASES) * (len(WAYS) + 2)
        with ThreadPoolExecutor(at_once) as callers:
            self._produce(callers, {FIRST.name: FIRST_TOPIC})()
            wait_until(
                lambda: sidecar.produce(FIRST_TOPIC, ONE).is_success, what="the end of the first cause"
            )
            for case in CASES:
                assert sidecar.produce(case.topic, ONE).is_success
            holds = [case.plant(cluster, case.topic, broker) for broker, case in enumerate(CASES, 1)]
            assert sidecar.produce(Errors.THROTTLING_QUOTA_EXCEEDED.name.lower(), ONE).is_success
            topics = {case.cause.name: case.topic for case in CASES}
            collect = self._produce(callers, topics)
            wait_until_the_status_names(sidecar, topics, callers)
            collect()
            for hold in holds:
                if hold is not None:
                    hold.release()

            cluster.demand_sasl(CHANGED)
            cluster.drop_connections(1)
            topics = {LAST.name: CASES[0].topic}
            wait_until_the_status_names(sidecar, topics, callers)
            self._produce(callers, topics)()

    def _produce(self, callers: ThreadPoolExecutor, topics: Mapping[str, str]) -> Callable[[], None]:
        """Begins to produce to the topic of each cause in all ways; what it returns collects the answers."""
        native = {name: callers.submit(self.sidecar.produce, topic, ONE) for name, topic in topics.items()}
        answers = {
            (name, way.operation_id): callers.submit(self._ask, way, topic)
            for name, topic in topics.items()
            for way in WAYS
        }

        def collect() -> None:
            self.native.update((name, answer.result()) for name, answer in native.items())
            self.answers.update((of, answer.result()) for of, answer in answers.items())

        return collect

    def _ask(self, way: DocumentedRequest, topic: str) -> httpx.Response:
        target = way.target(topic, self.cluster.cluster_id)
        return self.sidecar.api.request(
            way.method, target, headers=dict(way.headers), content=way.content(topic)
        )


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """The walk after its end; its sidecar still runs."""
    with running(tmp_path_factory.mktemp("sidecar")) as (cluster, sidecar):
        walk = Walk(cluster, sidecar)
        walk.go()
        yield walk


def printed(sidecar: Sidecar) -> str:
    """What `pilotfish status` prints."""
    ports = {"PILOTFISH_API_PORT": str(sidecar.api_port), "PILOTFISH_ADMIN_PORT": str(sidecar.admin_port)}
    return CliRunner().invoke(main, ["status"], env=ports).output


def named_by_status(sidecar: Sidecar) -> tuple[set[str], set[str]]:
    """The causes that the status names now: as JSON, and as the command prints it."""
    status: dict[str, Any] = sidecar.api.get("/v1/status").json()
    names = {finding["kafka_error"] for finding in status["slow"]}
    counts = [node[which] for node in status["nodes"] for which in ("waiting", "on_the_wire")]
    names |= {count["cause"]["kafka_error"] for count in (status["leaderless"], *counts) if count["cause"]}
    return names, set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", printed(sidecar)))


def wait_until_the_status_names(
    sidecar: Sidecar, causes: Mapping[str, str], callers: ThreadPoolExecutor
) -> None:
    """Produces to the topic of each cause, again and again, until the status has named every cause."""
    as_json: set[str] = set()
    as_text: set[str] = set()
    under_way: dict[str, Future[httpx.Response]] = {}

    def are_named() -> bool:
        for topic in causes.values():
            if topic not in under_way or under_way[topic].done():
                under_way[topic] = callers.submit(sidecar.produce, topic, ONE)
        names, words = named_by_status(sidecar)
        as_json.update(names)
        as_text.update(words)
        return causes.keys() <= as_json & as_text

    wait_until(are_named, what="every cause in the status", last_seen=lambda: f"{as_json} {as_text}")


def rows() -> dict[str, str]:
    """Each cause of docs/alerts.md with its row."""
    section = ALERTS_PAGE.partition("## Causes")[2].partition("\n## ")[0]
    return {name: row for row, name in re.findall(r"^(\| `([A-Z_]+)` \|.*)$", section, re.MULTILINE)}


def check(sidecar: Sidecar, name: str, answer: httpx.Response, *, node: int | None) -> None:
    """The answer, the metric, the log, and the runbook."""
    problem = answer.json()
    assert answer.status_code in (503, 504), problem
    # The broker's error itself, if the time was over when it came.
    assert problem["kafka_error"] in ("REQUEST_TIMED_OUT", name)
    assert (problem["cause"]["kafka_error"], problem["cause"]["node"]) == (name, node)
    assert f"The cause: {name}" in problem["detail"]
    assert problem["results"][0]["error"]["cause"] == problem["cause"]
    wait_until(
        lambda: sidecar.metric("pilotfish_record_errors_total", cause=name),
        what=f"failed records with the cause {name}",
    )
    wait_until(lambda: f"The cause: {name}" in sidecar.log(), what=f"{name} in the log")
    alert = re.search(r"\[(\w+)\]\(#(\w+)\)", rows()[name])
    assert alert is not None
    assert f"- alert: {alert[1]}\n" in RULES
    assert f"\n## {alert[1]}\n" in ALERTS_PAGE


def node_of(name: str) -> int | None:
    """The broker that a cause names."""
    nodes = {case.cause.name: broker for broker, case in enumerate(CASES, 1) if case.node}
    return 1 if name == LAST.name else nodes.get(name)


@pytest.mark.parametrize("name", CAUSES)
def test_each_cause_has_one_name_from_the_broker_to_the_runbook(walk: Walk, name: str) -> None:
    check(walk.sidecar, name, walk.native[name], node=node_of(name))
    if any(case.is_sent and case.cause.name == name for case in CASES):
        assert walk.sidecar.metric("pilotfish_record_retries_total", error=name)
    if name == LAST.name:
        labels = {"broker": "1", "reason": "authentication"}
        assert walk.sidecar.metric("pilotfish_broker_disconnects_total", **labels)


@pytest.mark.parametrize("way", [way.operation_id for way in WAYS])
@pytest.mark.parametrize("name", CAUSES)
def test_each_way_of_producing_names_each_cause(walk: Walk, name: str, way: str) -> None:
    answer = walk.answers[name, way]
    assert f"The cause: {name}" in answer.text, answer


def test_no_cause_and_no_dialect_is_left_out() -> None:
    assert set(rows()) == set(CAUSES)
    of_dialects = zip(DIALECTS, dialects_of(HttpApp(dialects=DIALECTS).app.sidecar), strict=True)
    walked = {
        name: any(way.path.startswith(dialect.prefixes) for way in WAYS) for name, dialect in of_dialects
    }
    assert walked == dict.fromkeys(DIALECTS, True)


LOOKUPS: Final = (
    "/v1/topics/orders/leader?partition=0&max_block_ms=2500",
    "/v1/cluster?max_block_ms=2500",
    "/v1/topics/orders/partitions/0/offsets?max_block_ms=2500",
)


@pytest.mark.parametrize(
    ("fault", "name", "reason"),
    [
        ("down", "NETWORK_EXCEPTION", "refused"),
        ("silent", "REQUEST_TIMED_OUT", None),
        ("rejecting", "SASL_AUTHENTICATION_FAILED", "authentication"),
    ],
)
async def test_a_look_up_without_an_answer_has_the_same_cause_as_a_produce(
    fault: str, name: str, reason: str | None
) -> None:
    sidecar = SimulatedSidecar()
    faulty = sidecar.brokers if fault == "silent" else sidecar.network
    setattr(faulty, fault, {1, 2, 3})
    answers = [await sidecar.get(path) for path in LOOKUPS]
    answers.append(
        await sidecar.ask(
            "POST", "/v1/topics/orders/records?max_block_ms=2500", json={"records": [{"value": "x"}]}
        )
    )
    for answer in answers:
        problem = answer.json()
        assert answer.status_code == 503
        # An authentication that failed is no timeout: it is the error itself, too.
        assert problem["kafka_error"] == (name if fault == "rejecting" else "BROKER_NOT_AVAILABLE")
        assert (problem["cause"]["kafka_error"], problem["cause"].get("reason")) == (name, reason)
        assert f"The cause: {name}" in problem["detail"]
    assert name in rows()
    sidecar.close()


ALL: Final = (1, 2, 3)
TLS: Final = SslAuthenticationError("TLS handshake failed: the authority is unknown")
#: Each reason for which there is no connection, and how it is planted.
UNCONNECTED: Final[Mapping[str, Callable[[SimulatedSidecar], None]]] = {
    "refused": lambda sidecar: sidecar.network.down.update(ALL),
    "authentication": lambda sidecar: sidecar.network.rejecting.update(ALL),
    "closed": lambda sidecar: sidecar.network.closing.update(ALL),
    "setup_timeout": lambda sidecar: sidecar.network.unreachable.update(ALL),
    "unresolved": lambda sidecar: setattr(sidecar.names, "is_down", True),
}


async def produce(sidecar: SimulatedSidecar) -> httpx.Response:
    path, records = "/v1/topics/orders/records?timeout_ms=28000", {"records": ONE}
    return await sidecar.ask("POST", path, step_ms=50, json=records)


def causes_of(status: Mapping[str, Any]) -> set[tuple[str, str | None]]:
    """The names and reasons of the causes for which records wait."""
    counts = [status["leaderless"], *(node["waiting"] for node in status["nodes"])]
    causes = [count["cause"] for count in counts if count["cause"]]
    return {(cause["kafka_error"], cause.get("reason")) for cause in causes}


def total(sidecar: SimulatedSidecar, name: str, **labels: str) -> float:
    """The sum of a metric's series that have these labels."""
    samples = [sample for family in make_registry(sidecar.app).collect() for sample in family.samples]
    return sum(
        sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()
    )


@pytest.mark.parametrize("reason", UNCONNECTED)
async def test_each_reason_for_which_there_is_no_connection_is_shown_alike(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    expected = ("NETWORK_EXCEPTION", reason)
    sidecar = SimulatedSidecar(kafka={"delivery.timeout.ms": "28000", "request.timeout.ms": "20000"})
    sidecar.network.rejection = TLS
    sidecar.controller.create_topic("orders", partitions=1, assignment=[[1, 2, 3]])
    assert (await produce(sidecar)).status_code == 200
    UNCONNECTED[reason](sidecar)
    sidecar.network.disconnect_all()

    seen: set[tuple[str, str | None]] = set()
    findings: set[str] = set()
    produced = asyncio.ensure_future(produce(sidecar))
    while not produced.done():
        status = (await sidecar.get("/v1/status")).json()
        seen |= causes_of(status)
        findings |= {finding["kafka_error"] for finding in status["slow"]}
        stale = [finding for finding in status["slow"] if "can't be refreshed" in finding["detail"]]
        assert all(finding["kafka_error"] == "NETWORK_EXCEPTION" for finding in stale)
        await sidecar.sleep(500)
    assert expected in seen
    assert "NETWORK_EXCEPTION" in findings

    problem = produced.result().json()
    assert produced.result().status_code == 503
    assert (problem["cause"]["kafka_error"], problem["cause"]["reason"]) == expected
    assert "The cause: NETWORK_EXCEPTION" in problem["detail"]
    assert any("10.0.0.1" in node["last_error"] for node in status["nodes"])
    assert total(sidecar, "pilotfish_record_errors_total", cause="NETWORK_EXCEPTION") == 1
    assert total(sidecar, "pilotfish_broker_disconnects_total", reason=reason) > 0
    assert f": connecting failed ({reason}): " in caplog.text
    assert "The cause: NETWORK_EXCEPTION" in caplog.text
    assert f"*{reason}*" in ALERTS_PAGE, "the runbook explains it"

    cold = (await sidecar.ask("GET", "/v1/topics/cold?max_block_ms=28000", step_ms=50)).json()
    assert (cold["cause"]["kafka_error"], cold["cause"]["reason"]) == expected
    if reason == "authentication":  # no timeout: the error itself
        assert cold["kafka_error"] == "NETWORK_EXCEPTION"
        assert cold["detail"].startswith(f"{TLS.message}. The cause: ")
    sidecar.close()


def test_a_blocking_send_without_a_broker_has_it_too() -> None:
    config = ProducerConfig.from_mapping(
        {"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}", "max.block.ms": "2000"}
    )
    with KafkaProducer(config) as producer:
        error = producer.send(ProducerRecord("orders", b"x")).exception(0)
    assert isinstance(error, TimeoutError)
    none = error.__cause__
    assert isinstance(none, NoBrokersError)
    assert none.cause is not None
    assert (none.cause.error, none.cause.reason) == (Errors.NETWORK_EXCEPTION, "refused")
