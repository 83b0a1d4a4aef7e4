"""Every route that reports partitions: how to ask it about one, and what its answer says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Answer(Protocol):
    """An HTTP answer of any client."""

    @property
    def status_code(self) -> int: ...

    def json(self) -> Any: ...


class Seen(NamedTuple):
    """What an answer says of a partition."""

    exists: bool
    leader: int | None


def _native_topic(answer: Answer, partition: int) -> Seen:
    partitions = answer.json().get("partitions", ()) if answer.status_code == 200 else ()
    found = next((p for p in partitions if p["partition"] == partition), None)
    return Seen(found is not None, None if found is None else found["leader"]["id"])


def _native(answer: Answer, partition: int) -> Seen:
    return Seen(True, answer.json()["leader"]["id"]) if answer.status_code == 200 else Seen(False, None)


def _batch(answer: Answer, partition: int) -> Seen:
    (result,) = answer.json()["results"]
    return Seen("error" not in result, result["leader"]["id"] if "error" not in result else None)


def _v2(answer: Answer, partition: int) -> Seen:
    return Seen(True, answer.json()["leader"]) if answer.status_code == 200 else Seen(False, None)


def _v2_topic(answer: Answer, partition: int) -> Seen:
    partitions = answer.json() if answer.status_code == 200 else ()
    if isinstance(partitions, dict):
        partitions = partitions["partitions"]
    found = next((p for p in partitions if p["partition"] == partition), None)
    return Seen(found is not None, None if found is None else found["leader"])


def _v3(answer: Answer, partition: int) -> Seen:
    if answer.status_code != 200:
        return Seen(False, None)
    return Seen(True, _v3_leader(answer.json()))


def _v3_leader(partition: Mapping[str, Any]) -> int:
    return int(partition["leader"]["related"].rpartition("/")[2])


def _v3_topic(answer: Answer, partition: int) -> Seen:
    """Returns whether the count says that the partition exists; the leader is not in this answer."""
    count = answer.json()["partitions_count"] if answer.status_code == 200 else 0
    return Seen(partition < count, None)


def _v3_partitions(answer: Answer, partition: int) -> Seen:
    partitions = answer.json()["data"] if answer.status_code == 200 else ()
    found = next((p for p in partitions if p["partition_id"] == partition), None)
    return Seen(found is not None, None if found is None else _v3_leader(found))


def _v3_replicas(answer: Answer, partition: int) -> Seen:
    replicas = answer.json()["data"] if answer.status_code == 200 else ()
    return Seen(bool(replicas), next((r["broker_id"] for r in replicas if r["is_leader"]), None))


def _v3_replica(answer: Answer, partition: int) -> Seen:
    """Returns the leader if it is broker 3, which is asked for; else 1, which was it before."""
    if answer.status_code != 200:
        return Seen(False, None)
    return Seen(True, 3 if answer.json()["is_leader"] else 1)


_V3: Final = "/v3/clusters/{cluster}/topics/{topic}"
#: The path of each route, and what reads its answer.
ROUTES: Final[dict[str, tuple[str, Callable[[Answer, int], Seen]]]] = {
    "topic": ("/v1/topics/{topic}", _native_topic),
    "partition": ("/v1/topics/{topic}/partitions/{partition}", _native),
    "leader": ("/v1/topics/{topic}/leader?partition={partition}", _native),
    "leaders": ("/v1/leaders", _batch),
    "v2 topic": ("/topics/{topic}", _v2_topic),
    "v2 partition": ("/topics/{topic}/partitions/{partition}", _v2),
    "v2 partitions": ("/topics/{topic}/partitions", _v2_topic),
    "v3 topic": (_V3, _v3_topic),
    "v3 partitions": (f"{_V3}/partitions", _v3_partitions),
    "v3 partition": (f"{_V3}/partitions/{{partition}}", _v3),
    "v3 replicas": (f"{_V3}/partitions/{{partition}}/replicas", _v3_replicas),
    "v3 replica": (f"{_V3}/partitions/{{partition}}/replicas/3", _v3_replica),
}


class LookUp(NamedTuple):
    """A request, and what reads its answer."""

    method: str
    path: str
    body: Mapping[str, Any] | None
    read: Callable[[Answer], Seen]


def look_up(route: str, topic: str, partition: int, cluster_id: str) -> LookUp:
    """Returns the request of a route for a partition."""
    path, read = ROUTES[route]
    body = {"lookups": [{"topic": topic, "partition": partition}]} if route == "leaders" else None
    path = path.format(topic=topic, partition=partition, cluster=cluster_id)
    return LookUp("GET" if body is None else "POST", path, body, lambda answer: read(answer, partition))


def shows(route: str, change: str) -> bool:
    """Returns whether the route's answers show a change: one has no leaders."""
    return (route, change) != ("v3 topic", "leader moved")
