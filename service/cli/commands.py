"""The commands that ask a running sidecar: topics, topic, leader, produce, status, wait, healthcheck.

Each prints a table, or with --json the sidecar's own answer. Exit code 0 when all was done, 1 when something
was refused or failed, 2 for a wrong call. `service/__main__.py` hangs them into the `pilotfish` group.
"""

from __future__ import annotations

import base64
import itertools
import json
import time
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from service.cli.sidecar import Sidecar, SidecarFailedError
from service.cli.tables import render
from service.schemas import FailedItem, LeaderAnswer, ProduceAnswer, StatusAnswer, TopicAnswer, TopicsAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from service.schemas import Receipt

#: Lines of standard input that go into one request: enough to fill a batch, few enough to be answered soon.
LINES_PER_REQUEST: Final = 500
#: How long a probe waits for an answer: less than any container's health check does.
PROBE_TIMEOUT_S: Final = 2.0
#: Between two looks at whether the sidecar has started.
LOOK_INTERVAL_S: Final = 0.05

_Command = TypeVar("_Command", bound="Callable[..., Any]")


def asks_api(command: _Command) -> _Command:
    """Gives a command the options that say where the API listens."""
    host = click.option("--api-host", envvar="PILOTFISH_API_HOST", default="127.0.0.1", show_default=True)
    port = click.option("--api-port", envvar="PILOTFISH_API_PORT", default=8085, show_default=True)
    return host(port(command))


def asks_admin(command: _Command) -> _Command:
    """Gives a command the options that say where the probes are: loopback, from inside a container too."""
    host = click.option("--admin-host", default="127.0.0.1", show_default=True)
    port = click.option("--admin-port", envvar="PILOTFISH_ADMIN_PORT", default=9464, show_default=True)
    return host(port(command))


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print the sidecar's answer as it is.")
max_block_option = click.option(
    "--max-block-ms", type=click.IntRange(min=0), help="How long to wait for metadata at most."
)


def show(answer: object, as_json: bool, table: Callable[[], str]) -> None:
    """Prints an answer one way or the other."""
    click.echo(json.dumps(answer, indent=2) if as_json else table())


@click.command()
@click.option("--prefix", default="", help="Only topics whose names begin so.")
@click.option("--internal", is_flag=True, help="Kafka's internal topics too.")
@as_json_option
@asks_api
def topics(prefix: str, internal: bool, as_json: bool, api_host: str, api_port: int) -> None:
    """Lists the topics of the cluster."""
    answer = Sidecar(api_host, api_port).get("v1", "topics", prefix=prefix, internal=internal)
    found = TopicsAnswer.model_validate(answer).topics
    rows = [(t.name, t.partition_count, t.internal, t.id) for t in found]
    show(answer, as_json, lambda: render(("topic", "partitions", "internal", "id"), rows))


@click.command()
@click.argument("name")
@max_block_option
@as_json_option
@asks_api
def topic(name: str, max_block_ms: int | None, as_json: bool, api_host: str, api_port: int) -> None:
    """Shows a topic's partitions: leaders, replicas, who is in sync."""
    answer = Sidecar(api_host, api_port).get("v1", "topics", name, max_block_ms=max_block_ms)
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
        for p in TopicAnswer.model_validate(answer).partitions
    ]
    head = ("partition", "leader", "address", "epoch", "replicas", "in sync", "offline", "error")
    show(answer, as_json, lambda: render(head, rows))


@click.command()
@click.argument("topic")
@click.option("--key", help="The key whose partition to look up.")
@click.option("--key-format", type=click.Choice(("text", "json", "base64")), help="How the key is written.")
@click.option("--partition", type=click.IntRange(min=0), help="The partition to look up.")
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
    api_host: str,
    api_port: int,
) -> None:
    """Says which broker leads a partition, or the partition of a key."""
    if (key is None) == (partition is None):
        raise click.UsageError("give either --key or --partition")
    answer = Sidecar(api_host, api_port).get(
        *("v1", "topics", topic, "leader"),
        key=key,
        key_format=key_format,
        partition=partition,
        max_block_ms=max_block_ms,
    )
    found = LeaderAnswer.model_validate(answer)
    node = found.leader
    row = (
        found.topic,
        found.partition,
        node.id if node else None,
        f"{node.host}:{node.port}" if node else None,
        node.rack if node else None,
        found.leader_epoch,
    )
    show(answer, as_json, lambda: render(("topic", "partition", "leader", "address", "rack", "epoch"), [row]))


@click.command()
@click.argument("topic")
@click.argument("values", nargs=-1)
@click.option("--key", help="The key of every record.")
@click.option("--key-separator", help="Splits each value: what stands before the first one is its key.")
@click.option("--partition", type=click.IntRange(min=0), help="The partition of every record.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record.")
@click.option("--json-values", is_flag=True, help="Values are JSON; refused if they are not.")
@click.option("--file", "source", type=click.File("rb"), default="-", help="Lines to produce; - is stdin.")
@max_block_option
@click.option("--timeout-ms", type=click.IntRange(min=0), help="How long each request may take altogether.")
@as_json_option
@asks_api
def produce(
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    json_values: bool,
    source: IO[bytes],
    max_block_ms: int | None,
    timeout_ms: int | None,
    as_json: bool,
    api_host: str,
    api_port: int,
) -> None:
    """Produces VALUES, or the lines of standard input, and shows where each record went."""
    if key is not None and key_separator is not None:
        raise click.UsageError("give either --key or --key-separator")
    shared = {"headers": [_header(text) for text in headers], "partition": partition}
    found = iter(values) if values else _lines(source)
    records = ({**_record(value, key, key_separator, json_values), **shared} for value in found)
    sidecar = Sidecar(api_host, api_port)
    formats = {"key_format": "text", "value_format": "json" if json_values else "text"}
    failed = False
    first = True
    while chunk := list(itertools.islice(records, LINES_PER_REQUEST)):
        answer = sidecar.post(
            *("v1", "topics", topic, "records"),
            body=msgspec.json.encode({"records": chunk, **formats}),
            max_block_ms=max_block_ms,
            timeout_ms=timeout_ms,
        )
        results = ProduceAnswer.model_validate(answer).results
        failed |= any(isinstance(result, FailedItem) for result in results)
        table = render(("partition", "offset", "error"), map(_receipt, results), with_head=first)
        click.echo(json.dumps(answer) if as_json else table)
        first = False
    if failed:
        raise SidecarFailedError("some records were not acknowledged")


def _lines(source: IO[bytes]) -> Iterator[str]:
    for number, line in enumerate(source, start=1):
        try:
            yield line.rstrip(b"\r\n").decode()
        except UnicodeDecodeError as error:
            raise SidecarFailedError(f"line {number} is not UTF-8; nothing of it was sent") from error


def _record(value: str, key: str | None, separator: str | None, json_values: bool) -> dict[str, object]:
    if separator is not None:
        key, found, value = value.partition(separator)
        if not found:
            raise SidecarFailedError(f"no {separator!r} in {key!r}: which part is its key?")
    return {"key": key, "value": _json(value) if json_values else value}


def _json(text: str) -> msgspec.Raw:
    """The text as it stands, once it is known to be one JSON value: its digits are not ours to change."""
    try:
        json.loads(text)
    except ValueError as error:
        raise SidecarFailedError(f"not JSON: {text!r} ({error})") from error
    return msgspec.Raw(text.encode())


def _header(text: str) -> dict[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise click.UsageError(f"--header wants NAME=VALUE, not {text!r}")
    return {"key": name, "value": base64.b64encode(value.encode()).decode()}


def _receipt(result: Receipt | FailedItem) -> tuple[object, ...]:
    if isinstance(result, FailedItem):
        return None, None, f"{result.error.kafka_error or 'error'}: {result.error.message}"
    return result.partition, result.offset, None


@click.command()
@as_json_option
@asks_api
def status(as_json: bool, api_host: str, api_port: int) -> None:
    """Shows how the sidecar is doing: its brokers, its buffer, what waits and why."""
    answer = Sidecar(api_host, api_port).get("v1", "status")
    show(answer, as_json, lambda: _status(StatusAnswer.model_validate(answer)))


def _status(found: StatusAnswer) -> str:
    metadata, buffer = found.metadata, found.buffer
    facts: Iterable[tuple[str, object]] = (
        ("state", "draining" if found.draining else found.state),
        ("metadata version", found.version),
        ("metadata age", _seconds(metadata.age_ms)),
        ("metadata error", metadata.last_error),
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
        (n.id, f"{n.host}:{n.port}", n.state, n.in_flight_requests, _seconds(n.backoff_left_ms), n.last_error)
        for n in found.nodes
    ]
    head = ("broker", "address", "state", "in flight", "backoff", "last error")
    return f"{render(('what', 'now'), facts)}\n\n{render(head, nodes)}"


def _seconds(ms: int | None) -> str | None:
    return None if ms is None else f"{ms / 1000:.1f} s"


@click.command()
@click.option("--timeout", "timeout_s", default=30.0, show_default=True, help="Seconds to wait at most.")
@asks_admin
def wait(timeout_s: float, admin_host: str, admin_port: int) -> None:
    """Waits until the sidecar has started. For entrypoints that must not run ahead of it."""
    sidecar = Sidecar(admin_host, admin_port, PROBE_TIMEOUT_S)
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            code, body = sidecar.ask("GET", "/startupz")
            told = body.decode(errors="replace").strip()
            if code == 200:
                return
        except SidecarFailedError as error:
            told = error.message
        if time.monotonic() >= deadline_s:
            raise SidecarFailedError(f"not started after {timeout_s:g} s: {told}")
        time.sleep(LOOK_INTERVAL_S)


@click.command()
@asks_admin
def healthcheck(admin_host: str, admin_port: int) -> None:
    """Exits 0 if the sidecar is alive. For HEALTHCHECK and exec probes in images without curl."""
    code, body = Sidecar(admin_host, admin_port, PROBE_TIMEOUT_S).ask("GET", "/livez")
    told = body.decode(errors="replace").strip()
    if code != 200:
        raise SidecarFailedError(told or f"/livez answered {code}")
    click.echo(told)


COMMANDS: Final = (topics, topic, leader, produce, status, wait, healthcheck)
