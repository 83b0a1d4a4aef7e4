"""HTTP load by wrk on a server in its own process; CPU is read from the server's process, not from ours."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from benchmarks.measure import Sample, process_cpu_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PATIENCE_S: Final = 60.0


def require_wrk() -> str:
    """The path of wrk; installs Debian's package when root, else says what to do."""
    found = shutil.which("wrk")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(
            ["apt-get", "install", "--yes", "--quiet", "wrk"], check=True, stdout=subprocess.DEVNULL
        )
        found = shutil.which("wrk")
    if found is None:
        raise SystemExit(
            "this benchmark loads HTTP by wrk. Install it and try again: sudo apt-get install wrk"
        )
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def process(
    arguments: Sequence[str], port: int, path: str, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program that answers 200 on a path; ends with the block."""
    server = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        await_answer(server, port, path)
        yield server
    finally:
        server.terminate()
        try:
            server.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.communicate()


def await_answer(server: subprocess.Popen[bytes], port: int, path: str) -> float:
    """Seconds until the path answers 200; raises with the server's own words when it ends instead."""
    started = time.perf_counter()
    while time.perf_counter() - started < PATIENCE_S:
        if server.poll() is not None:
            told = server.stderr.read().decode() if server.stderr else ""
            raise SystemExit(f"the server ended with {server.returncode}:\n{told}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return time.perf_counter() - started
        time.sleep(0.01)
    raise SystemExit(f"no answer from port {port} within {PATIENCE_S} s")


def wrk(
    port: int, path: str, pid: int, *, connections: int = 16, seconds: int = 3, script: Path | None = None
) -> Sample:
    """One turn of load; operations are the answers of status 2xx or 3xx that wrk counted."""
    command = [require_wrk(), "-t1", f"-c{connections}", f"-d{seconds}s"]
    if script is not None:
        command += ["-s", str(script)]
    cpu = process_cpu_s(pid)
    told = subprocess.run(
        [*command, f"http://127.0.0.1:{port}{path}"], check=True, capture_output=True, text=True
    ).stdout
    cpu = process_cpu_s(pid) - cpu
    counted = re.search(r"(\d+) requests in ([\d.]+)(m?s)", told)
    if counted is None or "Non-2xx" in told:
        raise SystemExit(f"wrk did not get what it asked for at {path}:\n{told}")
    return Sample(int(counted[1]), float(counted[2]) / (1000 if counted[3] == "ms" else 1), cpu)
