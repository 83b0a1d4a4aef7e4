"""The commands that call the probes: `wait` and `healthcheck`.

They run often, so they load little: no pydantic, none of Kafka's settings.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from service.base.logs import harmless
from service.cli.sidecar import PORT, Sidecar, SidecarFailedError

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Seconds(click.FloatRange):
    """A day at most. NaN is neither too small nor too large: a wait for so long would never end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


_LONGEST_S: Final = 86_400.0

#: A probe's timeout: below that of any container's health check.
_TIMEOUT_S: Final = 2.0
#: The time between two checks of the start.
_LOOK_INTERVAL_S: Final = 0.05


def asks_admin(command: _Command) -> _Command:
    """Adds the probes' address options to a command: loopback, inside a container too."""
    host = click.option(
        "--admin-host", default="127.0.0.1", show_default=True, help="Where the sidecar's probes listen."
    )
    port = click.option(
        "--admin-port",
        envvar="PILOTFISH_ADMIN_PORT",
        default=9464,
        type=PORT,
        metavar="PORT",
        show_default=True,
        help="Their port (PILOTFISH_ADMIN_PORT).",
    )
    return host(port(command))


@click.command()
@click.option(
    "--timeout",
    "timeout_s",
    type=_Seconds(min=0, max=_LONGEST_S),
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="How long to wait at most.",
)
@asks_admin
def wait(timeout_s: float, admin_host: str, admin_port: int) -> None:
    """Waits until the sidecar has started. For entrypoints that must not run ahead of it."""
    sidecar = _probes(admin_host, admin_port)
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            code, reported = _probe(sidecar, "/startupz")
            if code == 200:
                return
        except SidecarFailedError as error:
            reported = error.message
        if time.monotonic() >= deadline_s:
            raise SidecarFailedError(f"not started after {timeout_s:g} s: {reported}")
        time.sleep(_LOOK_INTERVAL_S)


@click.command(short_help="Exits 0 if the sidecar is alive, 1 if not.")
@click.option(
    "--timeout",
    "timeout_s",
    type=_Seconds(min=0, max=_LONGEST_S, min_open=True),
    metavar="SECONDS",
    default=_TIMEOUT_S,
    show_default=True,
    help="How long to wait for the answer.",
)
@asks_admin
def healthcheck(timeout_s: float, admin_host: str, admin_port: int) -> None:
    """Exits 0 if the sidecar is alive. For HEALTHCHECK and exec probes in images without curl."""
    code, reported = _probe(_probes(admin_host, admin_port, timeout_s), "/livez")
    if code != 200:
        raise SidecarFailedError(reported)
    click.echo(reported)


def _probes(host: str, port: int, timeout_s: float = _TIMEOUT_S) -> Sidecar:
    return Sidecar(host, port, timeout_s, port_option="--admin-port")


def _probe(sidecar: Sidecar, path: str) -> tuple[int, str]:
    """Returns the status of a probe, and its text."""
    code, body = sidecar.ask("GET", path)
    if code not in (200, 503):
        return (
            code,
            f"{sidecar.address} has no {path}. Name the port of Pilotfish's probes with --admin-port.",
        )
    return code, harmless(body.decode(errors="replace").strip())
