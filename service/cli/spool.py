"""`pilotfish spool show`, `requeue` and `discard`: a spool's records and dead letters.

They read the folder itself. `show` works beside a running sidecar. `requeue` calls the sidecar if it holds
the folder's lock. `discard` needs the folder unlocked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from client_core import SystemClock
from service.cli.options import asks_api, render, topic_name
from service.cli.sidecar import Sidecar, SidecarFailedError
from service.native.schemas import RequeueAnswer
from service.spool.contents import Contents, RequeueError, contents_of, discard, requeue
from service.spool.dead_letters import REASONS, DeadLetter
from service.spool.folder import FolderError, FolderInUseError

#: The default number of dead letters listed.
_LISTED: Final = 50

_folder: Final = click.option(
    "--folder",
    envvar="PILOTFISH_SPOOL_FOLDER",
    required=True,
    type=click.Path(path_type=Path),
    help="The sidecar's spool_folder (PILOTFISH_SPOOL_FOLDER).",
)


@click.group(short_help="Shows a spool's records, and requeues dead letters.")
def spool() -> None:
    """Show the spool of a sidecar, and requeue or discard its dead letters."""


@spool.command("show", short_help="Lists waiting records, and dead letters with their reasons.")
@_folder
@click.option("--json", "as_json", is_flag=True, help="As JSON, with every record.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_LISTED,
    show_default=True,
    help="How many dead letters to list.",
)
def show(folder: Path, as_json: bool, limit: int) -> None:
    """List the records to deliver by topic, and the dead letters with their reasons. Changes nothing."""
    contents = _doing(lambda: contents_of(folder))
    click.echo(json.dumps(_document(contents)) if as_json else _text(contents, limit))


_topic_option: Final = click.option("--topic", type=topic_name, help="Only records of this topic.")
_reason_option: Final = click.option(
    "--reason", type=click.Choice(list(REASONS)), help="Only dead letters with this reason."
)


@spool.command("requeue", short_help="Requeues dead letters, to be delivered.")
@_folder
@_topic_option
@_reason_option
@asks_api
def requeue_command(sidecar: Sidecar, folder: Path, topic: str | None, reason: str | None) -> None:
    """Move dead letters back into the spool, to be delivered after the records that wait there.

    If a sidecar uses the folder, the sidecar moves them; otherwise this command does.
    """
    try:
        put_back = _doing(lambda: requeue(folder, _choice(topic, reason), SystemClock()))
        when = f"when a sidecar starts on {folder}"
    except FolderInUseError:
        put_back, when = _ask(sidecar, folder, topic, reason), f"by the sidecar at {sidecar.address}"
    if not put_back:
        raise click.ClickException("nothing to requeue: there is no such dead letter")
    click.echo(f"{put_back} records will be delivered {when}")


def _ask(sidecar: Sidecar, folder: Path, topic: str | None, reason: str | None) -> int:
    try:
        answer = sidecar.post(RequeueAnswer, "v1", "spool", "requeue", body=b"", topic=topic, reason=reason)
    except SidecarFailedError as e:
        raise SidecarFailedError(f"{folder} is in use, so its sidecar was asked: {e.message}") from e
    return answer.read.requeued


@spool.command("discard", short_help="Deletes dead letters.")
@_folder
@_topic_option
@_reason_option
@click.option("--all", "of_all", is_flag=True, help="All dead letters, of any topic and reason.")
def discard_command(folder: Path, topic: str | None, reason: str | None, of_all: bool) -> None:
    """Delete dead letters for good. The sidecar must not run meanwhile."""
    if of_all == (topic is not None or reason is not None):
        raise click.UsageError("give --topic, --reason or both, or else --all")
    try:
        taken = _doing(lambda: discard(folder, _choice(topic, reason)))
    except FolderInUseError as e:
        raise click.ClickException(str(e)) from e
    if not taken:
        raise click.ClickException("nothing to discard: there is no such dead letter")
    click.echo(f"{taken} dead letters are deleted from {folder}")


def _choice(topic: str | None, reason: str | None) -> Callable[[DeadLetter], bool]:
    def chosen(one: DeadLetter) -> bool:
        return (reason is None or one.reason == reason) and topic in (None, one.topic)

    return chosen


def _doing(work: Callable[[], Any]) -> Any:
    """Runs the work; turns its failures into sentences with exit code 1."""
    try:
        return work()
    except FolderInUseError:
        raise
    except (FolderError, RequeueError) as e:
        raise click.ClickException(str(e)) from e
    except OSError as e:
        raise click.ClickException(f"{e.filename or 'the folder'}: {e.strerror or e}") from e


def _text(contents: Contents, limit: int) -> str:
    records = sum(topic.records for topic in contents.topics)
    parts = [f"{records} records to deliver, {contents.bytes} bytes"]
    if contents.topics:
        rows = [(topic, count, _at(oldest_ms)) for topic, count, oldest_ms in contents.topics]
        parts.append(render(("topic", "records", "oldest accepted"), rows))
    if contents.dead_letters:
        reasons = Counter(one.reason for one in contents.dead_letters)
        said = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        parts.append(f"{len(contents.dead_letters)} dead letters: {said}")
        head = ("number", "topic", "reason", "dead since", "detail")
        listed = [(o.sequence, o.topic, o.reason, _at(o.at_wall_ms), o.detail) for o in contents.dead_letters]
        parts.append(render(head, listed[:limit]))
        if len(listed) > limit:
            parts.append(f"and {len(listed) - limit} more: --limit lists them")
    if contents.damaged:
        parts.append(render(("damaged file", "bytes"), contents.damaged))
    return "\n\n".join(parts)


def _document(contents: Contents) -> dict[str, Any]:
    return {
        "records": sum(topic.records for topic in contents.topics),
        "bytes": contents.bytes,
        "topics": [topic._asdict() for topic in contents.topics],
        "set_aside": [
            {
                "sequence": one.sequence,
                "topic": one.topic,
                "reason": one.reason,
                "detail": one.detail,
                "at_wall_ms": one.at_wall_ms,
            }
            for one in contents.dead_letters
        ],
        "damaged_files": [{"name": name, "bytes": size} for name, size in contents.damaged],
    }


def _at(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
