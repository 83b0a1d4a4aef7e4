"""The product's own code that one warm request runs through: files, calls, switches from file to file.

    python -m tests.structure.request_paths look-up | produce | send

Each is counted in a process of its own, by `sys.setprofile` and `threading.setprofile`, set before any
thread starts. The cluster is the embedded one; its thread is not counted. Printed is a line of JSON: the
medians of some requests, one after the other. What the threads do on the side meanwhile is part of it.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.testing.cluster import BROKERS_THREAD
from client_core.testing.free_ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_ROOT: Final = Path(__file__).parents[2]
_OWN: Final = tuple(str(_ROOT / name) + os.sep for name in ("service", "client_core"))
_WARM_UP: Final = 50
_COUNTED: Final = 21
#: What follows an answer (the access log, metrics, the batch's memory) is done by then.
_SETTLE_S: Final = 0.02


class Counts(NamedTuple):
    """What one request ran through."""

    files: int
    calls: int
    switches: int


class _Profile:
    """Counts while it is switched on."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls = self.switches = 0
        self.files: set[str] = set()
        self._last: dict[int, str] = {}
        self._is_brokers: dict[int, bool] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not self.is_on:
            return
        file = frame.f_code.co_filename
        if not file.startswith(_OWN):
            return
        thread = threading.get_ident()
        if thread not in self._is_brokers:
            self._is_brokers[thread] = threading.current_thread().name == BROKERS_THREAD
        if self._is_brokers[thread]:
            return
        self.calls += 1
        self.switches += self._last.get(thread, file) != file
        self._last[thread] = file
        self.files.add(file)

    def counted(self, run: Callable[[], object]) -> Counts:
        self.calls = self.switches = 0
        self.files, self._last = set(), {}
        self.is_on = True
        run()
        time.sleep(_SETTLE_S)
        self.is_on = False
        return Counts(len(self.files), self.calls, self.switches)


def _median(profile: _Profile, run: Callable[[], object]) -> Counts:
    for _ in range(_WARM_UP):
        run()
    found = [profile.counted(run) for _ in range(_COUNTED)]
    return Counts(*(int(statistics.median(each)) for each in zip(*found, strict=True)))


def _send(profile: _Profile) -> Counts:
    from client_core import KafkaProducer, ProducerConfig, ProducerRecord
    from service.process.embedded import DEMO_TOPIC, EmbeddedCluster

    with (
        EmbeddedCluster(topics=(DEMO_TOPIC,)) as cluster,
        KafkaProducer(
            ProducerConfig.from_mapping({"bootstrap.servers": cluster.bootstrap_servers})
        ) as producer,
    ):
        return _median(profile, lambda: producer.send(ProducerRecord(DEMO_TOPIC, b"x")).result())


def _over_http(profile: _Profile, method: str, path: str, body: bytes | None) -> Counts:
    from service.__main__ import main

    api_port, admin_port = free_ports(2)
    found: list[Counts] = []

    def call() -> None:
        try:
            _await_ready(admin_port)
            connection = http.client.HTTPConnection("127.0.0.1", api_port)

            def ask() -> None:
                headers = {} if body is None else {"Content-Type": "application/json"}
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200, answer.status

            found.append(_median(profile, ask))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    caller = threading.Thread(target=call)
    caller.start()
    try:
        main(["serve", "--embedded", "--api-port", str(api_port), "--admin-port", str(admin_port)])
    except SystemExit:
        caller.join()
    return found[0]


def _await_ready(port: int) -> None:
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)


PATHS: Final[dict[str, Callable[[_Profile], Counts]]] = {
    "look-up": lambda profile: _over_http(profile, "GET", "/v1/topics/demo/leader?partition=0", None),
    "produce": lambda profile: _over_http(
        profile, "POST", "/v1/topics/demo/records", b'{"records":[{"value":1}]}'
    ),
    "send": _send,
}


def _main(name: str) -> None:
    profile = _Profile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    found = PATHS[name](profile)
    sys.setprofile(None)
    print(json.dumps(found._asdict()))


if __name__ == "__main__":
    _main(sys.argv[1])
