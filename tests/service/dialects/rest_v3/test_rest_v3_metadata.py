"""Metadata reads of REST Proxy v3: every shape, its links, its freshness, and its refusals."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from client_core import ListedTopic, MetadataResult, NoBrokersError, TopicListing
from client_core.producer.results.results import ListingResult
from service.admission.caller import Caller, TopicRules, set_caller
from service.dialects.rest_v3 import schemas
from tests.support.http_app import HttpApp
from tests.support.metadata_responses import node, partition, topic

if TYPE_CHECKING:
    import httpx
    from pydantic import BaseModel

    from tests.support.fake_producer import FakeTicket

ROOT = "http://localhost/v3/clusters"
C = f"{ROOT}/cluster"


@pytest.fixture
def http() -> HttpApp:
    """Brokers 1, 2 and 3; `orders` with two partitions, of which the second has no leader."""
    app = HttpApp()
    app.producer.nodes = [node(1, rack="r1"), node(2), node(3)]
    app.producer.set_topics(
        [
            topic(
                "orders",
                [
                    partition(0, leader=2, replicas=(2, 3), isr=(2,)),
                    partition(1, leader=None, replicas=(7, 3), isr=(3,), offline=(7,)),
                ],
            ),
            topic("__consumer_offsets", 1, nodes=(1,), is_internal=True),
        ],
        controller_id=3,
    )
    return app


def get(http: HttpApp, path: str) -> Any:
    answer = http.get(path.removeprefix("http://localhost"))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def error(http: HttpApp, path: str, method: str = "GET", **headers: str) -> tuple[int, int]:
    return code_of(http.ask(method, path, headers=headers))


def code_of(answer: httpx.Response) -> tuple[int, int]:
    """Status and code of a refusal, whose shape is looked at."""
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error_code", "message"]
    assert answer.json()["message"]
    return answer.status_code, answer.json()["error_code"]


CLUSTER = {
    "kind": "KafkaCluster",
    "metadata": {"self": C, "resource_name": "crn:///kafka=cluster"},
    "cluster_id": "cluster",
    "controller": {"related": f"{C}/brokers/3"},
    "acls": {"related": f"{C}/acls"},
    "brokers": {"related": f"{C}/brokers"},
    "broker_configs": {"related": f"{C}/broker-configs"},
    "consumer_groups": {"related": f"{C}/consumer-groups"},
    "topics": {"related": f"{C}/topics"},
    "partition_reassignments": {"related": f"{C}/topics/-/partitions/-/reassignment"},
}
BROKER = {
    "kind": "KafkaBroker",
    "metadata": {"self": f"{C}/brokers/1", "resource_name": "crn:///kafka=cluster/broker=1"},
    "cluster_id": "cluster",
    "broker_id": 1,
    "host": "localhost",
    "port": 9093,
    "rack": "r1",
    "configs": {"related": f"{C}/brokers/1/configs"},
    "partition_replicas": {"related": f"{C}/brokers/1/partition-replicas"},
}
TOPIC = {
    "kind": "KafkaTopic",
    "metadata": {"self": f"{C}/topics/orders", "resource_name": "crn:///kafka=cluster/topic=orders"},
    "cluster_id": "cluster",
    "topic_name": "orders",
    "is_internal": False,
    "replication_factor": 2,
    "partitions_count": 2,
    "partitions": {"related": f"{C}/topics/orders/partitions"},
    "configs": {"related": f"{C}/topics/orders/configs"},
    "partition_reassignments": {"related": f"{C}/topics/orders/partitions/-/reassignment"},
    "authorized_operations": [],
}


P0, P1 = (f"{C}/topics/orders/partitions/{n}" for n in (0, 1))


def partition_resource(url: str, number: int, leader: object) -> dict[str, Any]:
    return {
        "kind": "KafkaPartition",
        "metadata": {"self": url, "resource_name": f"crn:///kafka=cluster/topic=orders/partition={number}"},
        "cluster_id": "cluster",
        "topic_name": "orders",
        "partition_id": number,
        "leader": leader,
        "replicas": {"related": f"{url}/replicas"},
        "reassignment": {"related": f"{url}/reassignment"},
    }


PARTITION = partition_resource(P0, 0, {"related": f"{P0}/replicas/2"})
LEADERLESS = partition_resource(P1, 1, None)


def replica(partition_url: str, number: int, broker_id: int, *, leads: bool, in_sync: bool) -> dict[str, Any]:
    crn = f"crn:///kafka=cluster/topic=orders/partition={number}/replica={broker_id}"
    return {
        "kind": "KafkaReplica",
        "metadata": {"self": f"{partition_url}/replicas/{broker_id}", "resource_name": crn},
        "cluster_id": "cluster",
        "topic_name": "orders",
        "partition_id": number,
        "broker_id": broker_id,
        "is_leader": leads,
        "is_in_sync": in_sync,
        "broker": {"related": f"{C}/brokers/{broker_id}"},
    }


def listed(kind: str, url: str, data: list[Any]) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"self": url, "next": None}, "data": data}


def in_order(found: Any) -> Any:
    """The same with the order of members made visible."""
    if isinstance(found, dict):
        return [(name, in_order(value)) for name, value in found.items()]
    return [in_order(item) for item in found] if isinstance(found, list) else found


def test_each_resource_has_confluents_members_in_their_order(http: HttpApp) -> None:
    of_0 = [replica(P0, 0, 2, leads=True, in_sync=True), replica(P0, 0, 3, leads=False, in_sync=False)]
    partitions = f"{C}/topics/orders/partitions"
    resources: dict[str, tuple[Any, type[BaseModel]]] = {
        ROOT: (listed("KafkaClusterList", ROOT, [CLUSTER]), schemas.ClusterDataList),
        C: (CLUSTER, schemas.ClusterData),
        f"{C}/brokers/1": (BROKER, schemas.BrokerData),
        f"{C}/topics/orders": (TOPIC, schemas.TopicData),
        partitions: (
            listed("KafkaPartitionList", partitions, [PARTITION, LEADERLESS]),
            schemas.PartitionDataList,
        ),
        P0: (PARTITION, schemas.PartitionData),
        P1: (LEADERLESS, schemas.PartitionData),
        f"{P0}/replicas": (listed("KafkaReplicaList", f"{P0}/replicas", of_0), schemas.ReplicaDataList),
        f"{P0}/replicas/2": (of_0[0], schemas.ReplicaData),
        f"{P1}/replicas/7": (replica(P1, 1, 7, leads=False, in_sync=False), schemas.ReplicaData),
    }
    for url, (expected, model) in resources.items():
        found = get(http, url)
        assert in_order(found) == in_order(expected), url
        model.model_validate(found)


def test_brokers_are_listed_by_their_ids(http: HttpApp) -> None:
    found = get(http, f"{C}/brokers")
    assert found["kind"] == "KafkaBrokerList"
    assert found["metadata"] == {"self": f"{C}/brokers", "next": None}
    assert [(b["broker_id"], b["rack"]) for b in found["data"]] == [(1, "r1"), (2, None), (3, None)]
    schemas.BrokerDataList.model_validate(found)


def test_a_cluster_without_controller_says_null(http: HttpApp) -> None:
    http.producer.set_topics({}, controller_id=99)
    assert get(http, C)["controller"] is None


# -- topics --------------------------------------------------------------------------------------------------


def test_topics_are_listed_by_name_with_counts_and_without_internal_ones(http: HttpApp) -> None:
    http.producer.on_brokers = {"zebra": 1, "orders": 2, "__consumer_offsets": 50}
    found = get(http, f"{C}/topics")
    assert (found["kind"], found["metadata"]) == ("KafkaTopicList", {"self": f"{C}/topics", "next": None})
    assert [
        (t["topic_name"], t["partitions_count"], t["replication_factor"], t["is_internal"])
        for t in found["data"]
    ] == [("orders", 2, 3, False), ("zebra", 1, 3, False)]
    assert found["data"][0]["metadata"] == TOPIC["metadata"]
    schemas.TopicDataList.model_validate(found)


def test_a_topic_that_brokers_cannot_describe_is_not_listed(http: HttpApp) -> None:
    topics = {
        "ailing": ListedTopic("ailing", None, False, 0, error_code=5),
        "sound": ListedTopic("sound", None, False, 4, replication_factor=3),
    }
    result = ListingResult(TopicListing(MappingProxyType(topics)), waited_ms=0)
    answer = http.get(f"{C}/topics", ends=lambda ticket: http.producer.finish(ticket, result))
    assert [t["topic_name"] for t in answer.json()["data"]] == ["sound"]


def test_a_list_longer_than_one_go_is_whole(http: HttpApp) -> None:
    http.producer.on_brokers = {f"t{n:04}": 1 for n in range(450)}
    names = [t["topic_name"] for t in get(http, f"{C}/topics")["data"]]
    assert names == sorted(http.producer.on_brokers)


def test_an_internal_topic_is_returned_by_its_name(http: HttpApp) -> None:
    assert get(http, f"{C}/topics/__consumer_offsets")["is_internal"] is True


def test_a_topic_that_was_not_known_is_asked_for_and_not_created(http: HttpApp) -> None:
    http.producer.on_brokers = {"new": 4}
    assert get(http, f"{C}/topics/new")["partitions_count"] == 4
    asked = [arguments for kind, arguments in http.producer.calls if kind == "topics"]
    assert [arguments["create"] for arguments in asked] == [False]


def test_a_topic_that_is_looked_up_is_kept_from_idling(http: HttpApp) -> None:
    use = http.producer.cache.topics["orders"].use
    use.touched = False
    get(http, P0)
    assert use.touched


# -- links and freshness -------------------------------------------------------------------------------------


def test_links_are_made_of_the_scheme_and_host_of_the_request(http: HttpApp) -> None:
    app = HttpApp(allowed_hosts="*")
    app.producer.set_topics({"orders": 1})
    found = app.get("https://kafka.example:8443/v3/clusters").json()
    assert found["metadata"]["self"] == "https://kafka.example:8443/v3/clusters"
    topics = found["data"][0]["topics"]["related"]
    assert topics == "https://kafka.example:8443/v3/clusters/cluster/topics"


def test_answers_say_how_fresh_they_are_and_are_not_sent_twice(http: HttpApp) -> None:
    http.producer.clock.advance(17_400)
    first = http.get(P0)
    assert first.headers["age"] == "17"
    assert first.headers["pilotfish-metadata-version"] == http.version
    assert "pilotfish-metadata-refreshed-at" in first.headers
    again = http.get(P0, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_answers_go_on_while_the_brokers_are_away(http: HttpApp) -> None:
    http.producer.clock.advance(3_600_000)
    for url in (ROOT, f"{C}/brokers", f"{C}/topics/orders", f"{P1}/replicas"):
        assert http.get(url).headers["age"] == "3600"


# -- missing resources ---------------------------------------------------------------------------------------


#: Of them nothing is there, in the cluster and below it.
NOTHING = (
    *("/v3", "/v3/nothing"),
    *(
        f"/v3/clusters/other{rest}"
        for rest in (
            *("", "/brokers", "/brokers/1", "/topics", "/topics/orders"),
            "/topics/orders/partitions/0/replicas/2",
        )
    ),
    *(f"/v3/clusters/cluster/brokers/{name}" for name in ("99", "one", "-1", "99999999999999999999")),
    *(f"/v3/clusters/cluster/topics/orders/partitions/{name}" for name in ("2", "-1", "x", "2/replicas")),
    *(f"/v3/clusters/cluster/topics/orders/partitions/0/replicas/{name}" for name in ("1", "x")),
    *("/v3/clusters/cluster/topics/orders/configs", "/v3/clusters/cluster/acls"),
)


def test_what_is_not_there_is_404(http: HttpApp) -> None:
    assert {path: error(http, path) for path in NOTHING} == dict.fromkeys(NOTHING, (404, 404))


@pytest.mark.parametrize("rest", ["", "/replicas", "/replicas/3"])
def test_a_partition_is_missing_only_by_metadata_of_this_moment(http: HttpApp, rest: str) -> None:
    def grow(ticket: FakeTicket) -> None:
        assert ticket.kind == "update"
        http.producer.set_topics([topic("orders", 3, nodes=(1, 2, 3))], controller_id=3)
        http.producer.finish(ticket, MetadataResult(http.producer.cache))

    http.producer.clock.advance(1_001)
    path = f"/v3/clusters/cluster/topics/orders/partitions/2{rest}"
    assert http.get(path, ends=grow).status_code == 200


def test_brokers_that_are_away_leave_a_missing_partition_missing(http: HttpApp) -> None:
    http.producer.clock.advance(1_001)
    nothing = MetadataResult(http.producer.cache, error=NoBrokersError("none has answered"))
    path = "/v3/clusters/cluster/topics/orders/partitions/2"
    answer = http.get(path, ends=lambda ticket: http.producer.finish(ticket, nothing))
    assert code_of(answer) == (404, 404)


def test_a_missing_topic_is_40403_and_one_that_cannot_be_one_40002() -> None:
    for rest in ("", "/partitions", "/partitions/0", "/partitions/0/replicas"):
        http = HttpApp()  # of which none remembers that the topic is unknown
        http.producer.set_topics({"orders": 1})
        answer = http.get(f"/v3/clusters/cluster/topics/missing{rest}", ends=http.producer.say_unknown)
        assert code_of(answer) == (404, 40403), rest
        assert error(http, "/v3/clusters/cluster/topics/a%20b") == (400, 40002)


def test_before_any_broker_answered_it_is_50302() -> None:
    http = HttpApp()
    answer = http.get("/v3/clusters", ends=http.producer.time_out)
    assert code_of(answer) == (503, 50302)
    assert int(answer.headers["retry-after"]) >= 1


def test_parameters_and_other_methods_and_what_the_guards_refuse_is_refused_in_this_dialect(
    http: HttpApp,
) -> None:
    assert error(http, "/v3/clusters/cluster/topics?include_authorized_operations=true") == (422, 422)
    assert error(http, "/v3/clusters?a=1&a=2") == (400, 400)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert error(http, "/v3/clusters/cluster/topics/orders", method) == (405, 405), method
    assert error(http, "/v3/clusters", host="evil.example") == (421, 421)
    assert error(http, "/v3/clusters", origin="https://evil.example") == (403, 403)
    assert error(http, "/v3/clusters/a%2Fb") == (400, 400)


# -- rights --------------------------------------------------------------------------------------------------


def test_a_caller_sees_its_own_topics_only(http: HttpApp) -> None:
    http.producer.on_brokers = {"orders": 2, "secret": 1}
    caller = Caller("reader", TopicRules.of(["ord*"]), TopicRules())

    async def as_reader(scope: Any, receive: Any, send: Any) -> None:
        set_caller(scope, caller)
        await http.app(scope, receive, send)

    found = http.ask("GET", f"{C}/topics", app=as_reader).json()
    assert [t["topic_name"] for t in found["data"]] == ["orders"]
    assert http.ask("GET", P0, app=as_reader).status_code == 200
    for name in ("secret", "missing"):
        answer = http.ask("GET", f"/v3/clusters/cluster/topics/{name}", app=as_reader)
        assert (answer.status_code, answer.json()["error_code"]) == (403, 40301)
    assert [kind for kind, _ in http.producer.calls] == ["listing"]


async def test_links_begin_with_http_if_the_server_names_no_scheme(http: HttpApp) -> None:
    """ASGI lets it leave the scheme out. Both by the route and, the second time, by the table of answers."""
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("a GET has no body to read")

    async def send(message: Any) -> None:
        sent.append(message)

    path = b"/v3/clusters/cluster/topics/orders"
    scope = {"type": "http", "method": "GET", "path": path.decode(), "raw_path": path, "query_string": b""}
    for _ in range(2):
        sent.clear()
        await http.app({**scope, "headers": [(b"host", b"localhost")]}, receive, send)
        links = json.loads(sent[1]["body"])["metadata"]
        assert links["self"] == "http://localhost/v3/clusters/cluster/topics/orders"
