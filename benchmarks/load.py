"""Loads an HTTP server with wrk; the server has its own process, whose CPU is read."""

from __future__ import annotations

import contextlib
import http.client
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.measure import RESULTS_VARIABLE, Sample, process_cpu_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PATIENCE_S: Final = 60.0


def require_wrk() -> str:
    """Returns the path of wrk; installs Debian's package as root, else ends with instructions."""
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
    """Runs a Python program until the block ends; waits until it answers 200 on a path.

    A sidecar refuses to start with the variable of the results, which is no setting of it.
    """
    server = subprocess.Popen(
        [sys.executable, *arguments],
        env={name: v for name, v in os.environ.items() if name != RESULTS_VARIABLE} | environment,
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
    """Returns the seconds until the path answers 200; raises with the server's output if it ends instead."""
    started = time.perf_counter()
    while time.perf_counter() - started < PATIENCE_S:
        if server.poll() is not None:
            reported = server.stderr.read().decode() if server.stderr else ""
            raise SystemExit(f"the server ended with {server.returncode}:\n{reported}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return time.perf_counter() - started
        time.sleep(0.01)
    raise SystemExit(f"no answer from port {port} within {PATIENCE_S} s")


@dataclass(frozen=True, slots=True)
class Load:
    """One turn of load: the number of requests, and their durations as wrk measured them."""

    sample: Sample
    p50_ms: float
    p99_ms: float
    longest_ms: float


def wrk(
    port: int,
    path: str,
    pid: int,
    *,
    connections: int = 16,
    seconds: int = 3,
    script: Path | None = None,
    headers: Sequence[str] = (),
) -> Sample:
    """Runs one turn of load; operations are the answers of status 2xx or 3xx that wrk counted."""
    url = f"http://127.0.0.1:{port}{path}"
    return load(url, pid, connections=connections, seconds=seconds, script=script, headers=headers).sample


def load(
    url: str,
    pid: int | None,
    *,
    connections: int = 16,
    seconds: int = 3,
    script: Path | None = None,
    headers: Sequence[str] = (),
) -> Load:
    """As `wrk`, with the durations that wrk reports. Without a pid the server's CPU is NaN."""
    command = [require_wrk(), "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    command += [word for header in headers for word in ("-H", header)]
    if script is not None:
        command += ["-s", str(script)]
    cpu_s = math.nan if pid is None else process_cpu_s(pid)
    ran = subprocess.run([*command, url], capture_output=True, text=True)
    reported = ran.stdout
    cpu_s = math.nan if pid is None else process_cpu_s(pid) - cpu_s
    counted = re.search(r"(\d+) requests in ([\d.]+(?:us|ms|s|m))", reported)
    slowest = re.search(r"Latency +\S+ +\S+ +(\S+) ", reported)
    spread = dict(re.findall(r"^ +(\d+)% +(\S+)$", reported, re.MULTILINE))
    is_whole = {"50", "99"} <= spread.keys() and "Non-2xx" not in reported
    if ran.returncode or counted is None or slowest is None or not is_whole or counted[1] == "0":
        raise SystemExit(f"wrk did not get what it asked for at {url}:\n{reported}{ran.stderr}")
    sample = Sample(int(counted[1]), _milliseconds(counted[2]) / 1_000, cpu_s)
    p50_ms, p99_ms = _milliseconds(spread["50"]), _milliseconds(spread["99"])
    return Load(sample, p50_ms, p99_ms, _milliseconds(slowest[1]))


_MILLISECONDS: Final = {"us": 0.001, "ms": 1.0, "s": 1_000.0, "m": 60_000.0}


def _milliseconds(reported: str) -> float:
    """Parses a duration of wrk's output, such as `1.25ms`."""
    number = reported.rstrip("usm")
    return float(number) * _MILLISECONDS[reported[len(number) :]]
