"""The command `pilotfish-pipeline` and its subcommands, each imported when it is called.

So `--help` needs neither Spark nor Java, and `report` needs no Kafka connector. The table names the module of
each command; the command calls the module that does the work.

Exit codes: 0 for success, 1 for failure, 2 for wrong input, with a message of one sentence.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

import click


class _Lazy(NamedTuple):
    """The location of a command, and its line in the list of commands."""

    module: str
    attribute: str
    help: str


_COMMANDS: Final[dict[str, _Lazy]] = {
    "advise": _Lazy("pipeline.commands.advise", "advise", "Write advice for sidecars that start."),
    "forget": _Lazy("pipeline.commands.forget", "forget", "Remove events from the tables."),
    "jars": _Lazy("pipeline.commands.jars", "jars", "Fetch Spark's Kafka and Delta connectors."),
    "maintain": _Lazy("pipeline.commands.maintain", "maintain", "Close old days, and write files together."),
    "report": _Lazy("pipeline.commands.report", "report", "Write what the tables say as one HTML file."),
    "run": _Lazy("pipeline.commands.run", "run", "Read events, and bring every table up to date."),
}


class _LazyGroup(click.Group):
    """A group that imports a command when it is called, not when it is listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = _COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        command: click.Command = getattr(import_module(lazy.module), lazy.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name].help) for name in self.list_commands(ctx)])


@click.group(
    cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
def main() -> None:
    """Turn the events of a fleet of sidecars into tables, a report and advice."""


if __name__ == "__main__":
    main()
