"""`pilotfish quit`: ends a running sidecar in order, as SIGTERM does.

For the last line of a Job whose pod has the sidecar as an ordinary container. Kubelet sends that no SIGTERM
until all containers have ended. A native sidecar (a restartable init container) does not need this.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import click
from pydantic import BaseModel

from service.cli.options import asks_api
from service.cli.sidecar import Sidecar, SidecarFailedError

#: The sidecar answers before it begins to end.
_TIMEOUT_S: Final = 10.0


class _QuitAnswer(BaseModel):
    shutting_down: bool


@click.command("quit", short_help="Ends the sidecar, as SIGTERM does.")
@asks_api
def quit_command(sidecar: Sidecar) -> None:
    """Ends the sidecar in order, as SIGTERM does, and does not wait for the end.

    Needs the token of the sidecar's quit_token_file. A second call changes nothing.
    """
    asked = replace(sidecar, timeout_s=_TIMEOUT_S)
    status, body = asked.ask("POST", "/quitquitquit", b"")
    if status == 404:
        raise SidecarFailedError(
            f"the sidecar at {asked.address} can't be ended by this command; start it with "
            "--quit-token-file, or end it by a signal"
        )
    asked.answer_of(_QuitAnswer, status, body)
    click.echo("shutting down")
