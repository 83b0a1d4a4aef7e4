"""What goes wrong between Spark and a sidecar, each in one sentence with its place and a remedy.

    PilotfishError
    ├── InvalidOptionError        an option or a column makes no sense; said before any job runs
    ├── SidecarUnreachableError   nobody answered, or the line broke: the same request may do better later
    ├── SidecarRefusedError       it answered, and will go on answering so
    └── DeliveryFailedError       records that were not written, by row and reason

Spark wraps them in errors of its own and shows the text: an option's in an AnalysisException, a task's in a
PythonException once the task was tried as often as spark.task.maxFailures says.
"""

from __future__ import annotations

from pipeline.errors import PipelineError


class PilotfishError(PipelineError):
    """Any failure that this data source reports. Its text is for people."""


class InvalidOptionError(PilotfishError):
    """The caller's fault, known before anything is sent."""


class SidecarUnreachableError(PilotfishError):
    """No answer came. What was sent may have been taken all the same."""


class SidecarRefusedError(PilotfishError):
    """An answer that stays the same however often one asks."""


class DeliveryFailedError(PilotfishError):
    """Records that could not be written, or of which nobody knows."""
