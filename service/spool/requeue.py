"""Moves dead letters back into the spool, file by file, behind the waiting records.

    chosen records of a file  ──writer──▶  on the disk as new entries  ──▶  the file without them

If the process ends in between, both places have them: they may be delivered twice, but none is lost. The
records of a topic go back in the order in which they were spooled. In a sidecar the delivery's thread takes
the steps, so that no other thread changes the folder. Without a sidecar the CLI takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from client_core import ProducerRecord
from service.spool.dead_letters import DeadLetter, DeadLetterFile, DeadLetterFolder
from service.spool.writer import Completion, SpoolClosedError, Spooled, SpoolFault, SpoolFullError

Chosen = Callable[[DeadLetter], bool]
PutBack = Callable[[Sequence[ProducerRecord], Completion], None]


class Requeued(NamedTuple):
    """The result: the number of requeued records, and the fault that kept others back, if any."""

    records: int
    fault: str | None = None


class _Chunk(NamedTuple):
    """The records of a file that go back, by number, and those that stay."""

    file: DeadLetterFile
    taken: int
    left: list[DeadLetter]


class Requeue:
    """One requeue. The writer may report on any thread; all else is for the thread that calls `go_on`."""

    def __init__(
        self,
        dead_letters: DeadLetterFolder,
        put_back: PutBack,
        chosen: Chosen,
        *,
        wake: Callable[[], None],
        ended: Callable[[Requeued], None],
    ) -> None:
        """`put_back` is SpoolWriter's. `wake` is called when a step that waited can be taken.

        `ended` is called once, by `go_on`, `stop` or `end`.
        """
        self._dead_letters = dead_letters
        self._put_back = put_back
        self._chosen = chosen
        self._wake = wake
        self._report_ended = ended
        self._paths: list[Path] | None = None
        self._chunk: _Chunk | None = None
        self._outcome: Spooled | SpoolFault | None = None
        self._records = 0
        self.is_over = False

    @property
    def has_begun(self) -> bool:
        """Whether a step was taken."""
        return self._paths is not None

    @property
    def waits(self) -> bool:
        """Whether the disk has not answered yet."""
        return self._chunk is not None and self._outcome is None

    def go_on(self) -> None:
        """Takes the next step, if the disk has answered the last one; any fault ends the requeue."""
        try:
            if self._chunk is None:
                self._begin_chunk()
            elif self._outcome is not None:
                self._end_chunk(self._chunk, self._outcome)
        except OSError as e:
            self.end(e.strerror or str(e))
        except (SpoolClosedError, SpoolFullError) as e:
            self.end(str(e))
        except Exception:
            self.end("an unexpected exception; the log has the stack")
            raise

    def stop(self, fault: str) -> None:
        """Ends the requeue before its time. Records that were written meanwhile leave the dead letters."""
        if isinstance(self._outcome, Spooled):
            self.go_on()
        if not self.is_over:
            is_done = self._chunk is None and self._paths == []
            self.end(None if is_done else fault)

    def end(self, fault: str | None) -> None:
        """Ends the requeue. Records that were requeued stay requeued; the others stay dead letters.

        If a chunk is being written at that moment, its records may be both. `fault` None: all is done.
        """
        self.is_over = True
        if self._chunk is not None:
            self._dead_letters.drop_prepared(self._chunk.file)
        self._report_ended(Requeued(self._records, fault))

    def _begin_chunk(self) -> None:
        if self._paths is None:
            self._paths = self._dead_letters.finished_files()
        if not self._paths:
            self.end(None)
            return
        file = self._dead_letters.read(self._paths.pop(0))
        records: list[ProducerRecord] = []
        left: list[DeadLetter] = []
        for one in sorted(file.records, key=lambda dead: dead.sequence):
            entry = one.entry
            if entry is not None and self._chosen(one):
                records.append(entry.to_send)
            else:
                left.append(one)
        if records:
            # First, because on a full disk the records would be requeued and stay dead letters, at each call.
            self._dead_letters.prepare(file, left)
            self._chunk = _Chunk(file, len(records), left)
            self._put_back(records, self._reported)

    def _reported(self, outcome: Spooled | SpoolFault) -> None:
        self._outcome = outcome
        self._wake()

    def _end_chunk(self, chunk: _Chunk, outcome: Spooled | SpoolFault) -> None:
        if isinstance(outcome, SpoolFault):
            self.end(outcome.detail)
            return
        self._dead_letters.remove_others(chunk.file, chunk.left)
        self._records += chunk.taken
        self._chunk = self._outcome = None
