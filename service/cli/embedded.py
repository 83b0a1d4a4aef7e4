"""`pilotfish embedded`: controls the embedded brokers, and shows their records."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import click

from service.cli.options import render, topic_name
from service.cli.probes import asks_admin
from service.cli.sidecar import Sidecar, SidecarFailedError

_NONE_HERE = "has no embedded cluster; start it with `pilotfish serve --embedded`"


@click.group(short_help="Controls the cluster of `serve --embedded`.")
def embedded() -> None:
    """Stop, start and delay brokers of `pilotfish serve --embedded`, move leaders, and show records."""


def _steers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the admin listener's options to a command, and `ask(method, path)` as its first argument."""

    @functools.wraps(command)
    def run(admin_host: str, admin_port: int, **arguments: Any) -> None:
        sidecar = Sidecar(admin_host, admin_port, port_option="--admin-port")
        command(functools.partial(_ask, sidecar), **arguments)

    return asks_admin(run)


def _ask(sidecar: Sidecar, method: str, path: str) -> Any:
    status, body = sidecar.ask(method, f"/embedded{path}")
    try:
        answer = json.loads(body)
    except ValueError as error:  # not JSON: the admin listener's own text
        raise SidecarFailedError(f"{sidecar.address} {_NONE_HERE}") from error
    if status != 200:
        raise SidecarFailedError(str(answer.get("detail", answer)))
    return answer


def _show(status: Any) -> None:
    brokers = [(b["id"], b["address"], b["running"]) for b in status["brokers"]]
    click.echo(render(("broker", "address", "running"), brokers))
    partitions = [
        (topic["name"], p["partition"], p["leader"], p["isr"], p["end_offset"])
        for topic in status["topics"]
        for p in topic["partitions"]
    ]
    click.echo()
    click.echo(render(("topic", "partition", "leader", "in sync", "records"), partitions))


@embedded.command(name="status")
@_steers
def status(ask: Callable[[str, str], Any]) -> None:
    """Show brokers, leaders and end offsets."""
    _show(ask("GET", ""))


@embedded.command()
@click.argument("broker", type=click.IntRange(1))
@_steers
def stop(ask: Callable[[str, str], Any], broker: int) -> None:
    """Stop a broker; others lead its partitions."""
    _show(ask("POST", f"/brokers/{broker}/stop"))


@embedded.command()
@click.argument("broker", type=click.IntRange(1))
@_steers
def start(ask: Callable[[str, str], Any], broker: int) -> None:
    """Start a broker that was stopped."""
    _show(ask("POST", f"/brokers/{broker}/start"))


@embedded.command()
@click.argument("delay_ms", metavar="MILLISECONDS", type=click.IntRange(0))
@_steers
def delay(ask: Callable[[str, str], Any], delay_ms: int) -> None:
    """Delay all acknowledgements; 0 ends it. Records are stored at once."""
    _show(ask("POST", f"/delay/{delay_ms}"))


@embedded.command()
@click.argument("topic", type=topic_name)
@click.argument("partition", type=click.IntRange(0))
@click.argument("broker", type=click.IntRange(1))
@_steers
def move(ask: Callable[[str, str], Any], topic: str, partition: int, broker: int) -> None:
    """Make BROKER the leader of a partition."""
    _show(ask("POST", f"/topics/{topic}/partitions/{partition}/leader/{broker}"))


@embedded.command()
@click.argument("topic", type=topic_name)
@_steers
def records(ask: Callable[[str, str], Any], topic: str) -> None:
    """Show the newest records of a topic."""
    rows = [
        (r["partition"], r["offset"], r["key"], r["value"]) for r in ask("GET", f"/topics/{topic}/records")
    ]
    click.echo(render(("partition", "offset", "key", "value"), rows))
