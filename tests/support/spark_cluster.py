"""A standalone Spark cluster on this machine: a master, workers, and their executors as processes.

    with SparkCluster(folder, workers=2) as spark:
        done = spark.submit([SUBMITTED, "run", …], "--py-files", wheel)
        spark.executors()       the ids of the executors' processes now

It listens on loopback only. Every process ends with this one (process_guard.py). Blocks; one thread, but
`executors` may be called from another.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pyspark

from pipeline.session import find_java
from tests.support.process_guard import ProcessGuard
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

_HOST: Final = "127.0.0.1"
_HOME: Final = Path(pyspark.__file__).parent
#: The command as spark-submit takes it.
SUBMITTED: Final = str(Path(__file__).resolve().parents[2] / "pipeline/submit/pilotfish_pipeline.py")
#: As docs/pipeline-cluster.md says.
_JAVA: Final = "-XX:-DontCompileHugeMethods"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"
_URL: Final = re.compile(rb"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = b"Successfully registered with master"


class SparkCluster:
    """See the module. Each worker has one core."""

    def __init__(self, folder: Path, *, workers: int = 2, memory: str = "1g") -> None:
        self._folder = folder
        self._workers = workers
        self._memory = memory
        self._guard = ProcessGuard()
        #: The master first.
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for pid in self.executors():
            os.kill(pid, signal.SIGKILL)
        self._guard.close()
        for process in self._processes:
            process.wait()

    def _start(self) -> None:
        log = self._folder / "master.log"
        self._launch([_MASTER, "--host", _HOST, "--port", "0", "--webui-port", "0"], log)
        found = wait_until(lambda: _URL.search(log.read_bytes()), what="the master serves")
        assert found is not None
        self.url = found[1].decode()
        for number in range(self._workers):
            log = self._folder / f"worker-{number}.log"
            work = str(self._folder / f"worker-{number}")
            sizes = ["--cores", "1", "--memory", self._memory, "--work-dir", work]
            words = [_WORKER, "--host", _HOST, "--webui-port", "0", *sizes, self.url]
            self._launch(words, log)
            wait_until(lambda log=log: _REGISTERED in log.read_bytes(), what="a worker serves")  # type: ignore[misc]

    def _launch(self, words: Sequence[str], log: Path) -> None:
        settings = [f"{name}={value}" for name, value in _settings().items()]
        command = ["env", *settings, str(_HOME / "bin" / "spark-class"), *words]
        self._processes.append(self._guard.start(command, log=log, cwd=self._folder))

    def submit(self, arguments: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
        """Returns what spark-submit ended with; the driver is a process of this machine."""
        command = [str(_HOME / "bin" / "spark-submit"), "--master", self.url]
        command += ["--driver-java-options", _JAVA, "--conf", f"spark.executor.extraJavaOptions={_JAVA}"]
        command += ["--conf", f"spark.executor.memory={self._memory}", *options, *arguments]
        return subprocess.run(
            command,
            env={**os.environ, **_settings()},
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def executors(self) -> list[int]:
        """Returns the process ids of the executors that the workers have now."""
        workers = [process.pid for process in self._processes[1:]]
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(path.read_text().rpartition(")")[2].split()[1])
                command = (path.parent / "cmdline").read_bytes()
            except (OSError, ValueError):
                continue  # it has just ended
            if parent in workers and _EXECUTOR in command:
                found.append(int(path.parent.name))
        return sorted(found)


def _settings() -> dict[str, str]:
    return {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_LOCAL_HOSTNAME": _HOST,
        "PYSPARK_PYTHON": sys.executable,
    }
