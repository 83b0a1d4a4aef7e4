"""The command `pilotfish`: `serve` runs a sidecar, `settings` says what can be set.

The commands that ask a running sidecar live in cli/.

Exit codes: 0 for done, 1 for failed, 2 for a wrong call or setting.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from service.settings import OWN_NAMES, Settings, SettingsError, load_settings, settings_table
from service.version import pilotfish_version

_Command = TypeVar("_Command", bound=Callable[..., Any])

@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(pilotfish_version(), prog_name="pilotfish")
def main() -> None:
    """Kafka metadata and produce over HTTP on localhost."""


def _own_settings(command: _Command) -> _Command:
    """A flag for each of the sidecar's own settings."""
    for name in reversed(OWN_NAMES):
        field = Settings.model_fields[name]
        flag = f"--{name.replace('_', '-')}"
        help_text = field.description
        if field.annotation is bool:
            decorate = click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=help_text)
        elif isinstance(field.default, tuple):
            decorate = click.option(flag, name, multiple=True, help=f"{help_text} Repeatable.")
        else:
            decorate = click.option(flag, name, default=None, help=help_text)
        command = decorate(command)
    return command


@main.command()
@click.option("--config", "config_file", metavar="FILE", help="A TOML file with settings (PILOTFISH_CONFIG).")
@click.option(
    "--kafka", multiple=True, metavar="NAME=VALUE", help="A Kafka setting: linger.ms=0. Repeatable."
)
@_own_settings
def serve(config_file: str | None, kafka: tuple[str, ...], **flags: object) -> None:
    """Run a sidecar until SIGTERM."""
    given = {name: value for name, value in flags.items() if value is not None and value != ()}
    try:
        settings = load_settings(given, kafka, config_file)
    except SettingsError as e:
        for line in str(e).splitlines():
            click.echo(f"pilotfish: {line}", err=True)
        sys.exit(2)  # as click ends a wrong call
    # Loaded here: the commands that only ask a sidecar need neither uvicorn nor FastAPI.
    from service.server import serve as run

    sys.exit(run(settings))


@main.command()
def settings() -> None:
    """Print the sidecar's own settings as a Markdown table."""
    click.echo(settings_table())


if __name__ == "__main__":
    main()
