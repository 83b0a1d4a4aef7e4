"""Options, argument types and tables that the commands share.

The options: where the sidecar is, the token, the output format, topic names. Errors that need no request are
click's usage errors (exit code 2). Tables are plain text that pipes well: a head, rows, columns as wide as
they need.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from service.base.environment import TOKEN_VARIABLE
from service.base.logs import harmless
from service.base.topic_names import fault_of_topic_name
from service.cli.sidecar import PORT, Sidecar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


#: Characters of a token in a header: RFC 6750 has fewer, but the sidecar decides.
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


def render(head: Sequence[str], rows: Iterable[Sequence[object]], *, with_head: bool = True) -> str:
    """Returns the table as lines; numbers right-aligned, a dash for None."""
    values = [list(row) for row in rows]
    cells = [[_cell(value) for value in row] for row in values]
    widths = [max([len(head[i]), *(len(row[i]) for row in cells)]) for i in range(len(head))]
    right = [_is_numeric([row[i] for row in values]) for i in range(len(head))]
    lines = [list(head), *cells] if with_head else cells
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _is_numeric(column: Sequence[object]) -> bool:
    known = [value for value in column if value is not None]
    return bool(known) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in known
    )


def _cell(value: object) -> str:
    """Returns one cell. Brokers choose some texts, and terminals obey control characters: see `harmless`."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(_cell(item) for item in value) or "-"
    return harmless(str(value))


def text(value: str) -> str:
    """Checks for UTF-8: the shell passes any bytes, the API takes only UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter("it is not UTF-8; send other bytes as base64 over HTTP") from error
    return value


def topic_name(value: str) -> str:
    """Checks that the name is valid in Kafka."""
    fault = fault_of_topic_name(text(value))
    if fault is not None:
        raise click.BadParameter(fault)
    return value


def asks_api(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the API's address and token options to a command, and passes it a `sidecar`."""

    @functools.wraps(command)
    def asking(
        *, api_host: str, api_port: int, api_socket: str, token_file: Path | None, **rest: Any
    ) -> None:
        typed = [name for name in ("api_host", "api_port", "api_socket") if _is_typed(name)]
        if typed and "api_socket" not in typed:
            api_socket = ""  # the option wins over PILOTFISH_API_SOCKET
        asked = Sidecar(api_host, api_port, token=_token(token_file), socket_path=api_socket)
        command(sidecar=asked, **rest)

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
        type=PORT,
        metavar="PORT",
        show_default=True,
        help="Its port (PILOTFISH_API_PORT).",
    )
    token = click.option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A file with the caller's token, if the sidecar needs one (otherwise PILOTFISH_TOKEN).",
    )
    unix = click.option(
        "--api-socket",
        envvar="PILOTFISH_API_SOCKET",
        default="",
        metavar="PATH",
        help="Its Unix domain socket, used instead of host and port (PILOTFISH_API_SOCKET).",
    )
    return host(port(unix(token(asking))))


def _is_typed(option: str) -> bool:
    """Returns whether the command line, not the environment, has the option."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def _token(token_file: Path | None) -> str | None:
    """Returns the caller's token. It is no option: every user of a machine can read command lines."""
    source = TOKEN_VARIABLE if token_file is None else f"--token-file {token_file}"
    try:
        token = (
            os.environ.get(TOKEN_VARIABLE)
            if token_file is None
            else token_file.read_text(encoding="utf-8-sig").strip()
        )
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{source}: can't be read: {error}") from error
    if token is None or _TOKEN.fullmatch(token):
        return token
    raise click.UsageError(f"{source}: is not a token; it must be one line of printable ASCII without spaces")


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print the sidecar's answer unchanged.")
max_block_option = click.option(
    "--max-block-ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="How long to wait for metadata at most (Kafka's max.block.ms).",
)
