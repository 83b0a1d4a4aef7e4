"""`pilotfish serve` runs a sidecar, `pilotfish settings` lists the settings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click

from service.base.settings import (
    OWN_NAMES,
    REMOVED,
    InternalLimits,
    Settings,
    kafka_settings_table,
    removed,
    settings_table,
)
from service.base.settings_sources import SettingsError, load_settings

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: click's exit code for a usage error, also for a wrong setting.
_USAGE: Final = 2


def _own_settings(command: _Command) -> _Command:
    """Adds a flag for each of the sidecar's own settings."""
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
    for name in REMOVED:
        flag = f"--{name.replace('_', '-')}"
        command = click.option(
            flag, hidden=True, help="Removed.", expose_value=False, callback=_refuse_removed
        )(command)
    return command


def _refuse_removed(_: click.Context, option: click.Parameter, value: object) -> None:
    if value is not None:
        raise click.UsageError(f"{option.opts[0]}: {removed(option.name or '')}")


@click.command(short_help="Runs a sidecar until SIGTERM.")
@click.option("--config", "config_file", metavar="FILE", help="A TOML file with settings (PILOTFISH_CONFIG).")
@click.option(
    "--kafka", multiple=True, metavar="NAME=VALUE", help="A Kafka setting: linger.ms=0. Repeatable."
)
@click.option("--embedded", is_flag=True, help="Run on a small Kafka inside this process, to try it out.")
@click.option(
    "--embedded-port",
    type=click.IntRange(0, 65533),
    default=0,
    help="The port of the embedded Kafka's first broker; the others follow. 0 takes free ports.",
)
@click.option(
    "--embedded-folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder that keeps the embedded Kafka's topics and records from one run to the next.",
)
@_own_settings
@click.pass_obj
def serve(
    internal: InternalLimits | None,
    /,
    config_file: str | None,
    kafka: tuple[str, ...],
    embedded: bool,
    embedded_port: int,
    embedded_folder: Path | None,
    **flags: object,
) -> None:
    """Run a sidecar until SIGTERM."""
    given = {name: value for name, value in flags.items() if value is not None and value != ()}
    if internal is not None:  # the `obj` of a program that calls this command
        given["internal"] = internal
    if not embedded and (embedded_port or embedded_folder):
        raise click.UsageError("--embedded-port and --embedded-folder need --embedded")
    if embedded:
        _serve_embedded(given, kafka, config_file, embedded_port, embedded_folder)
    settings = _loaded(given, kafka, config_file)
    sys.exit(_server()(settings, load=lambda: load_settings(given, kafka, config_file)))


def _server() -> Callable[..., int]:
    """Returns what runs the sidecar. Loaded here: other commands need neither uvicorn nor FastAPI."""
    from service.process.server import serve as run

    # FastAPI asks of each route's types whether they are models of Pydantic 1, and would load all of it:
    # 2 MB, 20 ms. It continues without. An older FastAPI that needs it has loaded it by now.
    sys.modules.setdefault("pydantic.v1", None)  # type: ignore[arg-type]
    return run


def _own_command() -> str:
    """Returns the command that runs this program: `pilotfish`, or the Python that runs it from a checkout."""
    name = click.get_current_context().find_root().info_name or "pilotfish"
    if not name.startswith("python"):
        return name
    program = Path(sys.executable)
    if program.is_relative_to(Path.cwd()):
        program = program.relative_to(Path.cwd())
    return f"{program} -m service"


def _serve_embedded(
    given: dict[str, object],
    kafka: tuple[str, ...],
    config_file: str | None,
    port: int,
    folder: Path | None,
) -> NoReturn:
    from service.process.embedded import (
        DEMO_TOPIC,
        EmbeddedCluster,
        EmbeddedClusterError,
        EmbeddedControl,
        lines_to_try,
    )

    command = _own_command()
    try:
        with EmbeddedCluster(topics=(DEMO_TOPIC,), first_port=port, folder=folder) as cluster:
            settings = _loaded(given, (*kafka, f"bootstrap.servers={cluster.bootstrap_servers}"), config_file)
            if settings.events_topic:
                cluster.add_topic(settings.events_topic)

            def say_what_to_try(api_url: str, admin_port: int) -> None:
                control = f"{command} embedded stop 1"
                if admin_port != Settings.model_fields["admin_port"].default:
                    control += f" --admin-port {admin_port}"
                click.echo(lines_to_try(api_url, control))

            sys.exit(
                _server()(
                    settings,
                    when_started=say_what_to_try,
                    embedded=EmbeddedControl(cluster),
                )
            )
    except EmbeddedClusterError as e:
        raise click.ClickException(str(e)) from e


def _loaded(given: dict[str, object], kafka: tuple[str, ...], config_file: str | None) -> Settings:
    """Returns the settings; on faults prints a line for each and exits."""
    try:
        return load_settings(given, kafka, config_file)
    except SettingsError as e:
        for line in str(e).splitlines():
            click.echo(f"pilotfish: {line}", err=True)
        sys.exit(_USAGE)


@click.command(short_help="Prints the settings.")
@click.option("--kafka", is_flag=True, help="Kafka's settings, instead of the sidecar's own.")
def settings(kafka: bool) -> None:
    """Print what can be set, as a Markdown table."""
    click.echo(kafka_settings_table() if kafka else settings_table())
