"""Kafka's own Java producer beside a sidecar, sending at a steady rate while brokers and network fail.

    with JavaPeer(home, folder, proxies.bootstrap_servers, "t", partitions=6, records_per_second=60) as java:
        began_ms = now_ms()
        ...                                          # the fault
        java.longest_gap_ms(began_ms, now_ms())      # how long the worst partition had no success

The program is benchmarks/java/ChaosPeer.java, which Java compiles as it starts, so a JDK is needed: each
partition gets records in turn, and nothing waits for answers. All times are calendar milliseconds, `now_ms()`
here. A thread of its own reads the program's output; any thread may ask. The program ends with its input,
and so with this process.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from tests.support.java import require_compiler
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.support.kafka_home import KafkaHome

_PROGRAM: Final = Path(__file__).resolve().parents[2] / "benchmarks" / "java" / "ChaosPeer.java"
_JAVA_OPTIONS: Final = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_OK: Final = "ok"
#: The program waits as long for its thread, and again for the producer's end.
_END_TIMEOUT_S: Final = patient(60.0)


class Completed(NamedTuple):
    """A record that was acknowledged, or failed for good; times in calendar milliseconds."""

    partition: int
    sent_ms: int
    done_ms: int
    #: None where it was acknowledged.
    error: str | None
    offset: int | None


class JavaPeerError(RuntimeError):
    """The program ended, or did not answer; the message holds what it complained of."""


def now_ms() -> int:
    """The wall time in milliseconds, as in the program's output."""
    return time.time_ns() // 1_000_000


def longest_gap_ms(
    successes: Iterable[tuple[int, int]], partitions: int, since_ms: int, until_ms: int
) -> int:
    """The longest time within the window in which some partition had no success.

    `successes` are pairs of a partition and when it had a success; the window's ends count as if they were
    successes, so a partition without any has the whole window.
    """
    moments: dict[int, list[int]] = {partition: [since_ms, until_ms] for partition in range(partitions)}
    for partition, done_ms in successes:
        if since_ms < done_ms < until_ms:
            moments[partition].append(done_ms)
    return max(later - earlier for each in moments.values() for earlier, later in pairwise(sorted(each)))


class JavaPeer:
    """One program, sending from its start on. `properties` are producer settings by Kafka's names."""

    def __init__(
        self,
        home: KafkaHome,
        folder: Path,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        records_per_second: float,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """The folder is for what the program complains of. JavaMissingError where there is no compiler."""
        require_compiler(home.java)
        self._partitions = partitions
        self._properties = dict(properties or {})
        self._log_path = folder / "java-peer.log"
        self._command = [
            *(str(home.java), *_JAVA_OPTIONS, "-cp", ":".join(map(str, home.jars)), str(_PROGRAM)),
            *(bootstrap_servers, topic, str(partitions), str(records_per_second)),
        ]
        self._lock = threading.Lock()
        self._completed: list[Completed] = []
        self._marks: dict[str, int] = {}
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._reader = threading.Thread(target=self._read, name="java-peer", daemon=True)
        self._reader.start()
        try:
            self._wait_for(lambda: "ready" in self._said, what="the Java producer is ready")
            for name, value in self._properties.items():
                self._report(f"set {name} {value}")
            self._report("start")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    # -- results ---------------------------------------------------------------------------------------------

    def results(self) -> list[Completed]:
        """All that was completed so far, up to 100 ms ago, in the order of completion."""
        with self._lock:
            return list(self._completed)

    def acknowledged(self) -> int:
        """How many records were acknowledged so far."""
        return sum(each.error is None for each in self.results())

    def longest_gap_ms(self, since_ms: int, until_ms: int) -> int:
        """The longest time within the window in which some partition had no success; after `quit` too."""
        if "end" not in self._said:
            self.mark()
        successes = ((each.partition, each.done_ms) for each in self.results() if each.error is None)
        return longest_gap_ms(successes, self._partitions, since_ms, until_ms)

    def mark(self) -> int:
        """The program's time, after everything that it had completed by then has been read."""
        name = f"m{len(self._marks)}"
        self._report(f"mark {name}")
        self._wait_for(lambda: name in self._marks, what="the Java producer's mark")
        return self._marks[name]

    def quit(self) -> None:
        """Stops sending, waits until all is completed, and ends the program. Idempotent."""
        if self._process.poll() is None and "end" not in self._said:
            self._report("quit")
            self._wait_for(lambda: "end" in self._said, what="the Java producer has ended")
        self._end()

    # -- inside ----------------------------------------------------------------------------------------------

    def _report(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._ended() from error

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            with self._lock:
                if words[0] == "mark":
                    self._marks[words[1]] = int(words[2])
                elif len(words) == 1:
                    self._said.add(words[0])
                else:
                    self._completed.append(completed(line))

    def _wait_for(self, look: Callable[[], bool], *, what: str) -> None:
        def seen() -> bool:
            if look():
                return True
            if self._process.poll() is not None and not self._reader.is_alive():
                raise self._ended()
            return False

        wait_until(
            seen, what=what, timeout_s=_END_TIMEOUT_S, every_s=0.01, last_seen=self._log_path.read_text
        )

    def _ended(self) -> JavaPeerError:
        return JavaPeerError(f"the Java producer ended by itself: {self._log_path.read_text()[-4_000:]}")

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(_END_TIMEOUT_S)
        self._reader.join(_END_TIMEOUT_S)
        with contextlib.suppress(BrokenPipeError):  # a line that it did not take
            self._process.stdin.close()
        self._process.stdout.close()


def completed(line: str) -> Completed:
    """A record's end out of the program's line."""
    partition, sent_ms, done_ms, end, offset = line.split()
    is_ok = end == _OK
    return Completed(
        int(partition), int(sent_ms), int(done_ms), None if is_ok else end, int(offset) if is_ok else None
    )
