"""How a command that uses Spark ends when something goes wrong: one sentence, and the rest in a file.

Java writes to this process's standard error, whatever it was told about logging, and a fault of one line is
a page there. So while Spark starts, standard error is a file, which Java keeps for good; `--verbose` leaves
both where they are. Under spark-submit Java was there first, and its log is the submitter's.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pipeline.errors import PipelineError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A fault that nobody typed: of Spark, of a disk, or ours.
FAILED: Final = 1
_STDERR: Final = 2


class JavaLog:
    """The file that Spark's Java writes to; none when it is to write to the terminal."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @contextmanager
    def given_to_java(self) -> Iterator[None]:
        """What is started meanwhile has the file for its standard error."""
        if self.path is None:
            yield
            return
        sys.stderr.flush()
        terminal = os.dup(_STDERR)
        try:
            with self.path.open("ab") as log:
                os.dup2(log.fileno(), _STDERR)
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, _STDERR)
            os.close(terminal)


@contextmanager
def said_in_a_sentence(*, verbose: bool) -> Iterator[JavaLog]:
    """Ends the process with a sentence and an exit code where its body raises; the log goes when it doesn't.

    PipelineError is wrong input, with its own code; anything else failed, and its stack is in the log.
    """
    if verbose:
        try:
            yield JavaLog(None)
        except PipelineError as e:
            traceback.print_exc()
            _end(str(e), e.exit_code, None)
        return
    handle, name = tempfile.mkstemp(prefix="pilotfish-pipeline-", suffix=".log")
    os.close(handle)
    log = Path(name)
    try:
        yield JavaLog(log)
    except PipelineError as e:
        _note(log)
        _end(str(e), e.exit_code, log)
    except Exception as e:  # noqa: BLE001 - the outermost turn: whatever it is, it is told and its stack kept
        _note(log)
        _end(f"The run failed: {first_line(e)}", FAILED, log)
    except BaseException:
        log.unlink()
        raise
    else:
        log.unlink()


def _note(log: Path) -> None:
    with log.open("a", encoding="utf-8") as file:
        traceback.print_exc(file=file)


def _end(sentence: str, exit_code: int, log: Path | None) -> None:
    click.echo(f"pilotfish-pipeline: {sentence}", err=True)
    if log is not None and exit_code == FAILED:
        click.echo(f"pilotfish-pipeline: all that Spark said is in {log}", err=True)
    elif log is not None:
        log.unlink()
    sys.exit(exit_code)
