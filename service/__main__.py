"""The command `pilotfish`: a sidecar, and what can be asked of one.

Each command is loaded when it is called: a health check that runs every half minute, beside a service that
was promised a small sidecar, must not load FastAPI and all of Kafka's settings to ask for one page.

Exit codes: 0 for done, 1 for failed, 2 for a wrong call or setting.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Where each command is.
_COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "embedded": ("service.cli.embedded", "embedded"),
    "healthcheck": ("service.cli.probes", "healthcheck"),
    "inject": ("service.cli.inject.command", "inject"),
    "leader": ("service.cli.commands", "leader"),
    "produce": ("service.cli.produce", "produce"),
    "quit": ("service.cli.quit", "quit_command"),
    "serve": ("service.cli.serve", "serve"),
    "settings": ("service.cli.serve", "settings"),
    "spool": ("service.cli.spool", "spool"),
    "status": ("service.cli.commands", "status"),
    "token": ("service.cli.token", "token"),
    "topic": ("service.cli.commands", "topic"),
    "topics": ("service.cli.commands", "topics"),
    "wait": ("service.cli.probes", "wait"),
}


@contextmanager
def _ending_by_signal() -> Iterator[None]:
    """Ends the process with exit code 0 on a signal within: no request was accepted yet.

    Covers the seconds before the server keeps signals itself, most of which Python needs to load modules. A
    container's first process ignores signals without a handler: kubelet would wait for the whole grace
    period. SIGHUP, which would end the process, is ignored: the settings are about to be read.
    """
    before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGINT)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(*_: object) -> None:
    """Raises no SystemExit: code in Rust, such as pydantic's, reports it as an error of its own."""
    os._exit(0)


class _Group(click.Group):
    """The commands, each of them loaded when it is called, all when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name == "serve":
            ctx.with_resource(_ending_by_signal())
        module, name = _COMMANDS[cmd_name]
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="pilotfish", prog_name="pilotfish")
def main() -> None:
    """Kafka metadata and produce over HTTP on localhost."""


if __name__ == "__main__":
    main()
