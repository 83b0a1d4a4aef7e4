"""Options and argument types that the commands share: where to ask, how to show, what a topic may be called.

What can be found wrong before anybody is asked is found here, as click's usage errors (exit code 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from service.topic_names import fault_of_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable

_Command = TypeVar("_Command", bound="Callable[..., Any]")

_PORT: Final = click.IntRange(1, 65535)


def text(value: str) -> str:
    """Text that can be sent: the shell hands over any bytes, the API takes UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter("it is not UTF-8; send other bytes as base64 over HTTP") from error
    return value


def topic_name(value: str) -> str:
    """A name that Kafka would take."""
    fault = fault_of_topic_name(text(value))
    if fault is not None:
        raise click.BadParameter(fault)
    return value


def asks_api(command: _Command) -> _Command:
    """Gives a command the options that say where the API listens."""
    host = click.option(
        "--api-host",
        envvar="PILOTFISH_API_HOST",
        default="127.0.0.1",
        show_default=True,
        help="Where the sidecar's API listens (PILOTFISH_API_HOST).",
    )
    port = click.option(
        "--api-port",
        envvar="PILOTFISH_API_PORT",
        default=8085,
        type=_PORT,
        metavar="PORT",
        show_default=True,
        help="Its port (PILOTFISH_API_PORT).",
    )
    return host(port(command))


def asks_admin(command: _Command) -> _Command:
    """Gives a command the options that say where the probes are: loopback, from inside a container too."""
    host = click.option(
        "--admin-host", default="127.0.0.1", show_default=True, help="Where the sidecar's probes listen."
    )
    port = click.option(
        "--admin-port",
        envvar="PILOTFISH_ADMIN_PORT",
        default=9464,
        type=_PORT,
        metavar="PORT",
        show_default=True,
        help="Their port (PILOTFISH_ADMIN_PORT).",
    )
    return host(port(command))


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print the sidecar's answer as it is.")
max_block_option = click.option(
    "--max-block-ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="How long to wait for metadata at most (Kafka's max.block.ms).",
)
