"""The command `pilotfish`: a sidecar, and what can be asked of one.

Each command is loaded when it is called: a health check that runs every half minute, beside a service that
was promised a small sidecar, must not load FastAPI and all of Kafka's settings to ask for one page.

Exit codes: 0 for done, 1 for failed, 2 for a wrong call or setting.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

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


class _Group(click.Group):
    """The commands, each of them loaded when it is called, all when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
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
