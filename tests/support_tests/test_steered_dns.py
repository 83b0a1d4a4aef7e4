"""Another process is led where the test says, and asks anew each time."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self

from tests.support.steered_dns import SteeredDns
from tests.support.waiting import patient

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM: Final = """
import asyncio, socket, sys

async def by_loop(host):
    return await asyncio.get_running_loop().getaddrinfo(host, 9092, type=socket.SOCK_STREAM)

for line in sys.stdin:
    host = line.strip()
    try:
        found = socket.getaddrinfo(host, 9092, type=socket.SOCK_STREAM)
        assert asyncio.run(by_loop(host)) == found
        print(*[sockaddr[0] for *_, sockaddr in found], flush=True)
    except socket.gaierror as error:
        print("EAI_NONAME" if error.errno == socket.EAI_NONAME else error, flush=True)
"""


class _Resolving:
    """A process that looks names up."""

    def __init__(self, dns: SteeredDns) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **dns.environment()},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=patient(30))

    def look_up(self, host: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{host}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


def test_answers_change_and_fail_while_the_process_runs(tmp_path: Path) -> None:
    dns = SteeredDns(tmp_path)
    dns.answer("kafka.test", ["127.0.0.1", "127.0.0.2"])
    with _Resolving(dns) as process:
        assert process.look_up("kafka.test") == "127.0.0.1 127.0.0.2"
        dns.answer("kafka.test", ["127.0.0.3"])
        assert process.look_up("kafka.test") == "127.0.0.3"
        dns.fail("kafka.test")
        assert process.look_up("kafka.test") == "EAI_NONAME"
        dns.answer("kafka.test", ["::1"])
        assert process.look_up("kafka.test") == "::1"


def test_other_names_are_looked_up_as_ever(tmp_path: Path) -> None:
    dns = SteeredDns(tmp_path)
    dns.fail("127.0.0.9")
    with _Resolving(dns) as process:
        assert process.look_up("127.0.0.8") == "127.0.0.8"
        assert process.look_up("127.0.0.9") == "EAI_NONAME"
        dns.forget("127.0.0.9")
        assert process.look_up("127.0.0.9") == "127.0.0.9"


def test_a_look_up_hangs_until_there_is_an_answer(tmp_path: Path) -> None:
    dns = SteeredDns(tmp_path)
    dns.hang("kafka.test")
    with _Resolving(dns) as process, ThreadPoolExecutor(1) as executor:
        found = executor.submit(process.look_up, "kafka.test")
        assert not found.done()
        dns.answer("kafka.test", ["127.0.0.1"])
        assert found.result(30) == "127.0.0.1"
        assert process.look_up("kafka.test") == "127.0.0.1"
    dns.close()
