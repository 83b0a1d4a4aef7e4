"""Reads topics, partitions and brokers as rows, with the names of the API (docs/http.md).

    topics       one row per topic that the token may read
    partitions   one row per partition; `refreshed_at` is when a broker last confirmed it
    brokers      one row per broker, with the cluster's id

Each function sends requests and yields rows in the order of its schema. `leader` is null if there is none.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.datasource.answers import CHECK_URL, reason_of
from pipeline.datasource.sidecar_http import SidecarRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pipeline.datasource.sidecar_http import Answer

_BROKER: Final = (
    StructField("id", IntegerType(), False),
    StructField("host", StringType(), False),
    StructField("port", IntegerType(), False),
    StructField("rack", StringType()),
)
_BROKER_IDS: Final = ArrayType(IntegerType(), False)

SCHEMAS: Final = {
    "topics": StructType(
        [
            StructField("name", StringType(), False),
            StructField("id", StringType()),
            StructField("internal", BooleanType(), False),
            StructField("partition_count", IntegerType(), False),
            StructField("error", StringType()),
        ]
    ),
    "partitions": StructType(
        [
            StructField("topic", StringType(), False),
            StructField("topic_id", StringType()),
            StructField("partition", IntegerType(), False),
            StructField("leader", StructType(list(_BROKER))),
            StructField("leader_epoch", IntegerType()),
            StructField("replicas", _BROKER_IDS, False),
            StructField("isr", _BROKER_IDS, False),
            StructField("offline_replicas", _BROKER_IDS, False),
            StructField("error", StringType()),
            StructField("refreshed_at", TimestampType()),
        ]
    ),
    "brokers": StructType([StructField("cluster_id", StringType()), *_BROKER]),
}

#: The maximum of look-ups in one POST /v1/leaders.
_LOOKUPS: Final = 1_000

_NOT_FOUND: Final = 404


class Listed(NamedTuple):
    """A listed topic: what the planning of a read needs of it."""

    name: str
    partitions: int


class Sidecar:
    """The requests of a read. `ask(method, path, body)` returns the answer; it retries if that may help."""

    def __init__(self, where: str, ask: Callable[[str, str, bytes | None], Answer]) -> None:
        self._where = where
        self._ask = ask

    def topics(self, patterns: Sequence[str], *, internal: bool) -> Iterator[tuple[Any, ...]]:
        """Yields rows of the table topics. Raises SidecarRefusedError if a named topic is missing."""
        # Requests the whole list, or with a single pattern the topics with its prefix.
        prefix = patterns[0].rstrip("*") if len(patterns) == 1 else ""
        query = urlencode({"prefix": prefix, "internal": str(internal or bool(patterns)).lower()})
        listed = self._get(f"/v1/topics?{query}", "topics")["topics"]
        there = {topic["name"] for topic in listed}
        missing = [name for name in patterns if not name.endswith("*") and name not in there]
        if missing:
            raise SidecarRefusedError(
                f"the sidecar at {self._where} lists no topic {missing[0]}; create it, or let the token's "
                "entry in the tokens file read it"
            )
        for topic in listed:
            if _is_asked(topic["name"], topic["internal"], patterns, internal=internal):
                yield tuple(topic[name] for name in SCHEMAS["topics"].fieldNames())

    def listed(self, patterns: Sequence[str], *, internal: bool) -> list[Listed]:
        """Returns the topics with their numbers of partitions."""
        return [Listed(row[0], row[3]) for row in self.topics(patterns, internal=internal)]

    def brokers(self) -> Iterator[tuple[Any, ...]]:
        """Yields rows of the table brokers."""
        cluster = self._get("/v1/cluster", "brokers")
        for broker in cluster["brokers"]:
            yield (cluster["cluster_id"], *_broker(broker))

    def partitions(self, topics: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yields rows of the table partitions; none for a topic deleted since it was listed."""
        self._make_known(topics)
        for name in topics:
            answer = self._ask("GET", f"/v1/topics/{quote(name, safe='')}", None)
            if answer.status == _NOT_FOUND:
                continue
            topic = self._read(answer, f"/v1/topics/{name}", "partitions")
            refreshed_at = _time(answer.headers)
            for one in topic["partitions"]:
                leader = one["leader"]
                yield (
                    *(topic["name"], topic["id"], one["partition"]),
                    *(None if leader is None else _broker(leader), one["leader_epoch"]),
                    *(one["replicas"], one["isr"], one["offline_replicas"], one["error"], refreshed_at),
                )

    def _make_known(self, topics: Sequence[str]) -> None:
        """Makes the sidecar request the metadata of all topics together, not one by one.

        A deleted topic is an error within the results; the caller's loop notices it too.
        """
        for first in range(0, len(topics), _LOOKUPS):
            lookups = [{"topic": name, "partition": 0} for name in topics[first : first + _LOOKUPS]]
            body = json.dumps({"lookups": lookups}).encode()
            self._read(self._ask("POST", "/v1/leaders", body), "/v1/leaders", "results")

    def _get(self, path: str, member: str) -> dict[str, Any]:
        return self._read(self._ask("GET", path, None), path, member)

    def _read(self, answer: Answer, path: str, member: str) -> dict[str, Any]:
        """Returns the answer. Raises SidecarRefusedError for an error, and if `member` is no list in it."""
        if answer.status != 200:
            raise SidecarRefusedError(f"{path} at {self._where}: {reason_of(answer)}")
        try:
            read = json.loads(answer.body)
        except ValueError as error:
            raise SidecarRefusedError(
                f"{path} at {self._where}: the answer is not JSON; {CHECK_URL}"
            ) from error
        if not isinstance(read, dict) or not isinstance(read.get(member), list):
            raise SidecarRefusedError(
                f"{path} at {self._where}: the answer is not a JSON object with {member}; {CHECK_URL}"
            )
        return read


def _is_asked(name: str, is_internal: bool, patterns: Sequence[str], *, internal: bool) -> bool:
    """Returns whether a pattern matches. Internal topics match only by full name or with `internal`."""
    if name in patterns:
        return True
    if is_internal and not internal:
        return False
    return not patterns or any(name.startswith(pattern[:-1]) for pattern in patterns if pattern.endswith("*"))


def _broker(broker: Mapping[str, Any]) -> tuple[Any, ...]:
    return broker["id"], broker["host"], broker["port"], broker["rack"]


def _time(headers: Mapping[str, str]) -> datetime | None:
    text = headers.get("pilotfish-metadata-refreshed-at")
    return None if text is None else datetime.fromisoformat(text)
