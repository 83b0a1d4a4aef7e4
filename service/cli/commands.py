"""The commands that query a running sidecar: topics, topic, leader, status.

Each prints a table, or with --json the sidecar's own answer. Exit code 0 on success, 1 when the sidecar
refused or failed, 2 for a usage error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from service.base.logs import harmless
from service.cli.options import as_json_option, asks_api, max_block_option, render, text, topic_name
from service.cli.sidecar import Sidecar
from service.native.schemas import LeaderAnswer, TopicAnswer, TopicsAnswer
from service.native.status_schemas import Slow, StatusAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def show(answer: object, as_json: bool, table: Callable[[], str]) -> None:
    """Prints an answer as JSON or as a table."""
    click.echo(json.dumps(answer, indent=2) if as_json else table())


@click.command()
@click.option("--prefix", type=text, default="", help="Only topics whose names have this prefix.")
@click.option("--internal", is_flag=True, help="Also Kafka's internal topics.")
@as_json_option
@asks_api
def topics(prefix: str, internal: bool, as_json: bool, sidecar: Sidecar) -> None:
    """Lists the topics of the cluster."""
    answer = sidecar.get(TopicsAnswer, "v1", "topics", prefix=prefix, internal=internal)
    rows = [(t.name, t.partition_count, t.internal, t.id) for t in answer.read.topics]
    show(answer.raw, as_json, lambda: render(("topic", "partitions", "internal", "id"), rows))


@click.command(short_help="Shows a topic's partitions and leaders.")
@click.argument("name", metavar="TOPIC", type=topic_name)
@max_block_option
@as_json_option
@asks_api
def topic(name: str, max_block_ms: int | None, as_json: bool, sidecar: Sidecar) -> None:
    """Shows a topic's partitions: leaders, replicas, who is in sync."""
    answer = sidecar.get(TopicAnswer, "v1", "topics", name, max_block_ms=max_block_ms)
    rows = [
        (
            p.partition,
            p.leader.id if p.leader else None,
            f"{p.leader.host}:{p.leader.port}" if p.leader else None,
            p.leader_epoch,
            p.replicas,
            p.isr,
            p.offline_replicas,
            p.error,
        )
        for p in answer.read.partitions
    ]
    head = ("partition", "leader", "address", "epoch", "replicas", "in sync", "offline", "error")
    show(answer.raw, as_json, lambda: render(head, rows))


@click.command(short_help="Shows which broker leads a partition, or the partition of a key.")
@click.argument("topic", type=topic_name)
@click.option("--key", type=text, help="The key whose partition to look up.")
@click.option("--key-format", type=click.Choice(("text", "json", "base64")), help="The key's format.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="The partition to look up.")
@max_block_option
@as_json_option
@asks_api
def leader(
    topic: str,
    key: str | None,
    key_format: str | None,
    partition: int | None,
    max_block_ms: int | None,
    as_json: bool,
    sidecar: Sidecar,
) -> None:
    """Says which broker leads a partition, or the partition of a key."""
    if (key is None) == (partition is None):
        raise click.UsageError("give either --key or --partition")
    answer = sidecar.get(
        LeaderAnswer,
        *("v1", "topics", topic, "leader"),
        key=key,
        key_format=key_format,
        partition=partition,
        max_block_ms=max_block_ms,
    )
    found = answer.read
    node = found.leader
    row = (
        found.topic,
        found.partition,
        node.id if node else None,
        f"{node.host}:{node.port}" if node else None,
        node.rack if node else None,
        found.leader_epoch,
    )
    show(
        answer.raw,
        as_json,
        lambda: render(("topic", "partition", "leader", "address", "rack", "epoch"), [row]),
    )


@click.command(short_help="Shows brokers, buffer memory and waiting requests.")
@as_json_option
@asks_api
def status(as_json: bool, sidecar: Sidecar) -> None:
    """Shows how the sidecar is doing: its brokers, its buffer, what waits and why."""
    answer = sidecar.get(StatusAnswer, "v1", "status")
    show(answer.raw, as_json, lambda: _status(answer.read))


def _status(found: StatusAnswer) -> str:
    metadata, buffer = found.metadata, found.buffer
    facts: Iterable[tuple[str, object]] = (
        ("state", "draining" if found.draining else found.state),
        ("metadata version", found.version),
        ("metadata age", _seconds(metadata.age_ms)),
        ("metadata error", _aged(metadata.last_error, metadata.last_error_age_ms)),
        ("topics known", f"{metadata.topics} with {metadata.partitions} partitions"),
        (
            "requests waiting",
            f"{found.waiting_for_metadata} for metadata, {found.waiting_for_buffer} for memory",
        ),
        ("records buffered", f"{buffer.records} in {buffer.batches} batches"),
        ("oldest batch", _seconds(buffer.oldest_batch_age_ms)),
        ("memory free", f"{buffer.available_bytes} of {buffer.total_bytes} bytes"),
        ("batches in flight", str(found.in_flight_batches)),
    )
    nodes = [
        (
            # Bootstrap connections have negative ids.
            "bootstrap" if n.id < 0 else str(n.id),
            f"{n.host}:{n.port}",
            n.state,
            n.in_flight_requests,
            _seconds(n.oldest_in_flight_age_ms),
            _seconds(n.produce.p50_ms, 3),
            _seconds(n.produce.p99_ms, 3),
            _seconds(n.backoff_left_ms),
            _aged(n.last_error, n.last_error_age_ms),
        )
        for n in sorted(found.nodes, key=lambda n: n.id)
    ]
    # p50 and p99 of Produce requests in the last minute.
    head = ("broker", "address", "state", "in flight", "oldest", "p50", "p99", "backoff", "last error")
    tables = [render(("what", "now"), facts), render(head, nodes)]
    if found.slow:
        tables.insert(0, "\n".join(["Slow:", *(f"  {_finding(finding)}" for finding in found.slow)]))
    return "\n\n".join(tables)


def _finding(finding: Slow) -> str:
    """Returns what is slow, with Kafka's name of the cause."""
    name = finding.kafka_error
    return harmless(
        finding.detail if name is None or name in finding.detail else f"{finding.detail} ({name})"
    )


def _seconds(ms: int | None, digits: int = 1) -> str | None:
    return None if ms is None else f"{ms / 1000:.{digits}f} s"


def _aged(error: str | None, age_ms: int | None) -> str | None:
    """Returns an error with its age, so that readers see whether it still matters."""
    return error if error is None or age_ms is None else f"{error}, {_seconds(age_ms)} ago"
