"""What can be wrong with what somebody gave the pipeline. The command line says it in a sentence and ends.

    PipelineError
    ├── StoreError           stores/store.py: a folder of the other store, of another version, not writable
    ├── JobError             job.py: another input than the checkpoint's
    │   └── ReadingEndedError  job.py: the source failed while it was read
    ├── NoAdviceError, FileNotWrittenError, NotPublishedError     advise/
    └── ...                  each room that reads something from outside has its own

Each message is one sentence or two: what is wrong, where, and the remedy. It never holds a secret.
"""

from __future__ import annotations

from typing import ClassVar


class PipelineError(Exception):
    """Wrong input, or surroundings that lack something. Not a bug, and not worth a stack trace."""

    #: What the command ends with: 2 for what was typed or is missing, as click does; 1 for what failed later.
    exit_code: ClassVar[int] = 2


def first_line(error: BaseException) -> str:
    """What an error says of its own accord, without the Java that it went through."""
    java = getattr(error, "java_exception", None)
    lines = [line.strip() for line in str(java.toString() if java is not None else error).splitlines()]
    said = next((line for line in lines if line), "")
    return said or type(error).__name__
