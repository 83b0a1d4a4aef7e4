"""A spool in a folder, turned by hand, over a disk that fails when a test wants it.

    rig = SpoolRig(tmp_path)
    rig.spool_in([record("a"), record("b")])
    rig.deliver()

No thread runs: `spool_in` turns the writer, `deliver` the delivery until it has nothing to do now. `again` is
the next process over the same folder, after a kill: the first one was not closed.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Any

from client_core import (
    KafkaError,
    Phase,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    TimeoutError,
    Written,
)
from service.base.disk import Disk
from service.base.settings import Settings
from service.spool.dead_letters import dead_letters_in
from service.spool.delivery import MARK_EVERY_MS
from service.spool.folder import FolderError, SpoolFolder
from service.spool.spool import Spool
from tests.support.fake_producer import FakeProducer
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from service.base.producer_protocol import Producer
    from service.spool.writer import Spooled, SpoolFault
    from tests.support.fake_producer import Outcome

#: Turns of a delivery after which it goes on for ever.
MANY = 5_000


class BadDisk(Disk):
    """A disk whose next calls fail: `fails["fsync"] = 1` fails the next fsync, and that one alone.

    `room_bytes`: how much it takes yet; a write that does not fit is done in part, as by a real one.
    """

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}
        self.errno = errno.EIO
        self.room_bytes: int | None = None
        self.fsyncs = 0
        self.synced: list[Path] = []
        self._descriptors: set[int] = set()

    def let_go(self) -> None:
        """Closes what is open, as the kernel does where a process is killed."""
        for descriptor in tuple(self._descriptors):
            self._descriptors.discard(descriptor)
            super().close(descriptor)

    def close(self, descriptor: int) -> None:
        if descriptor in self._descriptors:  # or the process that opened it was killed
            self._descriptors.discard(descriptor)
            super().close(descriptor)

    @property
    def open_files(self) -> int:
        return len(self._descriptors)

    def _opened(self, descriptor: int) -> int:
        self._descriptors.add(descriptor)
        return descriptor

    def _look(self, operation: str) -> None:
        if self.fails.get(operation, 0):
            self.fails[operation] -= 1
            raise OSError(self.errno, f"no {operation} here")

    def create(self, path: Path, mode: int = 0o600) -> int:
        self._look("create")
        return self._opened(super().create(path, mode))

    def reopen(self, path: Path) -> int:
        self._look("reopen")
        return self._opened(super().reopen(path))

    def write(self, descriptor: int, data: memoryview) -> int:
        self._look("write")
        if self.room_bytes is None:
            return super().write(descriptor, data)
        if not self.room_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = super().write(descriptor, data[: self.room_bytes])
        self.room_bytes -= written
        return written

    def fsync(self, descriptor: int) -> None:
        """Nothing is waited for: no test cuts the power."""
        self._look("fsync")
        self.fsyncs += 1

    def truncate(self, descriptor: int, size: int) -> None:
        self._look("truncate")
        super().truncate(descriptor, size)

    def sync_folder(self, folder: Path) -> None:
        self._look("sync_folder")
        self.synced.append(folder)

    def read(self, path: Path, offset: int, size: int) -> bytes:
        self._look("read")
        return super().read(path, offset, size)

    def read_whole(self, path: Path) -> bytes:
        self._look("read_whole")
        return super().read_whole(path)

    def size(self, path: Path) -> int:
        self._look("size")
        return super().size(path)

    def make_folder(self, path: Path, mode: int) -> None:
        self._look("make_folder")
        super().make_folder(path, mode)

    def unlink(self, path: Path) -> None:
        self._look("unlink")
        super().unlink(path)

    def rename(self, old: Path, new: Path) -> None:
        self._look("rename")
        super().rename(old, new)


#: Made once: reading them looks at the environment too, and hundreds of crashes have a rig each.
_SETTINGS: dict[str, Settings] = {}


def _settings_of(folder: Path, given: dict[str, Any]) -> Settings:
    key = repr(sorted(given.items()))
    if key not in _SETTINGS:
        _SETTINGS[key] = Settings.model_validate({"kafka": {"bootstrap.servers": "localhost:9092"}, **given})
    return _SETTINGS[key].model_copy(update={"spool_folder": str(folder)})


class SpoolRig:
    """See the module."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: MockClock | None = None,
        producer: Producer | None = None,
        disk: BadDisk | None = None,
        **settings: Any,
    ) -> None:
        """Topics are `orders` and `payments`. `producer`: in place of a fake one, which stays idle then.

        `disk`: another one for this process.
        """
        self.folder = folder
        self.clock = MockClock(now_ms=1_000_000) if clock is None else clock
        self.producer = FakeProducer(clock=self.clock)
        self.producer.set_topics({"orders": 3, "payments": 3})
        self.disk = BadDisk() if disk is None else disk
        self._given = settings
        self.settings = _settings_of(folder, settings)
        # The names above it are on no disk then: to have them there takes longer than most tests.
        with contextlib.suppress(FolderError):
            SpoolFolder(folder, sync_folder=lambda _: None).close()
        self.spool = Spool(
            self.settings, self.producer if producer is None else producer, self.clock, self.disk
        )
        self.producer.start()

    @property
    def sent(self) -> list[str]:
        """The values that were handed to the producer, in order."""
        return [(record.value or b"").decode() for chunk in self.producer.submitted for record in chunk]

    @property
    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.segment"))

    def submit(self, records: Sequence[ProducerRecord]) -> list[Spooled | SpoolFault]:
        """Queues records; the list receives their result."""
        reported: list[Spooled | SpoolFault] = []
        self.spool.submit(records, reported.append)
        return reported

    def spool_in(self, records: Sequence[ProducerRecord]) -> Spooled | SpoolFault:
        """Spools records and returns their result."""
        reported = self.submit(records)
        self.spool.writer.turn()
        (outcome,) = reported
        return outcome

    def deliver(self) -> None:
        """Turns the delivery until it waits."""
        for _ in range(MANY):
            now_ms = self.clock.now_ms()
            before = len(self.producer.submitted), self.spool.delivery.delivered
            due_ms = self.spool.delivery.turn(now_ms)
            if due_ms > now_ms and before == (len(self.producer.submitted), self.spool.delivery.delivered):
                return
        raise AssertionError("the delivery never waits")

    def deliver_after(self, ms: int) -> None:
        """The same, so much later."""
        self.clock.advance(ms)
        self.deliver()

    def settle(self) -> None:
        """Delivers what can be delivered, and has the mark written."""
        self.deliver()
        self.deliver_after(MARK_EVERY_MS)

    def wait_out(self) -> None:
        """Delivers until what brokers refuse has been waited for in vain."""
        self.deliver()
        self.deliver_after(self.settings.spool_topic_wait_ms)

    def let_go(self) -> None:
        """Closes the process's files, as the kernel does after a kill, and does nothing else."""
        self.spool.release()
        self.disk.let_go()

    def again(self) -> SpoolRig:
        """The next process over the folder."""
        self.let_go()
        return SpoolRig(self.folder, clock=self.clock, **self._given)


def salt_of(path: Path) -> bytes:
    """The salt of a file of entries, by its name."""
    return bytes.fromhex(path.stem.rpartition("-")[2])


def record(value: str, topic: str = "orders", *, partition: int | None = None) -> ProducerRecord:
    """A record with a value."""
    return ProducerRecord(topic, value.encode(), partition=partition)


def records(count: int, topic: str = "orders") -> list[ProducerRecord]:
    """So many records with different values."""
    return [record(f"{topic}-{number}", topic) for number in range(count)]


# -- errors of brokers, and outcomes of records -----


def failure(error: KafkaError, phase: Phase = Phase.DELIVERY) -> RecordFailure:
    return RecordFailure(error, phase, Written.UNKNOWN if phase is Phase.DELIVERY else Written.NO, 5)


def timed_out(cause: KafkaError | None = None) -> RecordFailure:
    """The topic was waited for in vain."""
    error = TimeoutError("topic orders not present in metadata after 60000 ms")
    error.__cause__ = cause
    return failure(error, Phase.METADATA)


def fail_values(rig: SpoolRig, error: RecordFailure, *values: str) -> None:
    """Each attempt at a record of these values fails so; the others are acknowledged."""

    def report(index: int, one: ProducerRecord) -> Outcome:
        return error if (one.value or b"").decode() in values else rig.producer.receipt(index, one)

    rig.producer.outcome_of = report


def acknowledged(rig: SpoolRig) -> list[str]:
    """Values that brokers acknowledged, in order, from now on."""
    found: list[str] = []
    report = rig.producer.outcome_of or rig.producer.receipt

    def noted(index: int, one: ProducerRecord) -> Outcome:
        outcome = report(index, one)
        if isinstance(outcome, RecordMetadata):
            found.append((one.value or b"").decode())
        return outcome

    rig.producer.outcome_of = noted
    return found


def dead_letters_of(rig: SpoolRig) -> list[tuple[str, str]]:
    """Value and reason of each dead letter."""
    found = [one for file in dead_letters_in(rig.folder) for one in file.records]
    return [((one.entry.record.value or b"").decode() if one.entry else "", one.reason) for one in found]
