"""Ends a failed Spark command with one sentence; the details go to a log file.

Java writes to this process's standard error whatever its logging settings are, and one fault takes a page;
Delta's VACUUM writes to standard output. So both are redirected to a file while Spark starts, and Java keeps
that file. `--verbose` redirects nothing. Under spark-submit Java was started earlier, and its log belongs to
the submitter.
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

#: A failure that no option caused: of Spark, of a disk, or a bug of ours.
FAILED: Final = 1
_STDOUT: Final = 1
_STDERR: Final = 2


class JavaLog:
    """The file for the output of Spark's Java; None if it goes to the terminal."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @contextmanager
    def given_to_java(self) -> Iterator[None]:
        """Redirects standard output and error to the file; processes started meanwhile inherit it."""
        if self.path is None:
            yield
            return
        sys.stdout.flush()
        sys.stderr.flush()
        before = {number: os.dup(number) for number in (_STDOUT, _STDERR)}
        try:
            with self.path.open("ab") as log:
                for number in before:
                    os.dup2(log.fileno(), number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, file in before.items():
                os.dup2(file, number)
                os.close(file)


@contextmanager
def said_in_a_sentence(*, verbose: bool) -> Iterator[JavaLog]:
    """Ends the process with a sentence and an exit code if its body raises. Deletes the log on success.

    A PipelineError is wrong input, with its own exit code. Any other error is logged with its stack.
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
    except Exception as e:  # noqa: BLE001 - the outermost level: reports any exception and logs its stack
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
