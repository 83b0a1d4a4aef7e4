"""The base class of errors in the input. The command line reports one in a sentence and ends.

    PipelineError
    ├── StoreError           stores/store.py: a folder of the other store, of another version, not writable
    ├── JobError             job.py: another input than the checkpoint's
    │   └── ReadingEndedError  job.py: the source failed while it was read
    ├── NoAdviceError, FileNotWrittenError, NotPublishedError     advise/
    └── ...                  each package that reads external data has its own

Each message is one or two sentences: what is wrong, where, and the remedy. It never contains a secret.
"""

from __future__ import annotations

from typing import ClassVar


class PipelineError(Exception):
    """Wrong input or a deficient environment. Not a bug, so no stack trace is shown."""

    #: The command's exit code: 2 for wrong or missing options, as in click; 1 for later failures.
    exit_code: ClassVar[int] = 2


def first_line(error: BaseException) -> str:
    """Returns the first line of the error's own message, without Java's stack."""
    java = getattr(error, "java_exception", None)
    lines = [line.strip() for line in str(java.toString() if java is not None else error).splitlines()]
    said = next((line for line in lines if line), "")
    return said or type(error).__name__


def cause_of(error: BaseException) -> str:
    """Returns the first line of the innermost Java exception, such as that of a damaged file; "" if none."""
    java = getattr(error, "java_exception", None)
    inner = None if java is None else java.getCause()
    if inner is None:
        return ""
    while inner.getCause() is not None:
        inner = inner.getCause()
    return str(inner.toString()).strip().partition("\n")[0]
