"""Measures how long look-ups wait that come seldom: each finds an answer too old, and waits for a broker.

    python -m benchmarks.sparse_lookups              one look-up of each sidecar in 10 s, 300 in all
    python -m benchmarks.sparse_lookups --each 60    one in 60 s

Three real brokers, thirty sidecars. Their look-ups are spread evenly, so no two wait at the same time. For
comparison the same sidecar is asked again at once, when the answer is fresh; and thirty processes that do
nothing else ask a broker the same over a plain socket, as seldom: no sidecar can be quicker. At the end the
brokers are stopped by SIGSTOP: the first look-up of each sidecar waits for at most 250 ms, those after it do
not wait. Not part of `make bench`.
"""

from __future__ import annotations

import argparse
import http.client
import math
import multiprocessing
import socket
import struct
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from benchmarks.brokers import TOPIC, three_brokers
from benchmarks.measure import table
from benchmarks.sidecar import sidecar
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import encode_request_header
from client_core.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

SIDECARS: Final = 30
LOOK_UPS: Final = 300
PATH: Final = f"/v1/topics/{TOPIC}/leader?partition=0"
#: An answer of this age may be sent only after a broker was asked.
_TOO_OLD_S: Final = 5.5
_VERSION: Final = 12
_LENGTH: Final = struct.Struct(">i")


def look_up_ms(caller: http.client.HTTPConnection) -> float:
    """Returns how long a look-up took, in ms."""
    begun_s = time.perf_counter()
    caller.request("GET", PATH)
    answer = caller.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
    return (time.perf_counter() - begun_s) * 1000


def ask_by_socket(host: str, port: int, asked: Connection) -> None:
    """Asks a broker for the topic whenever something comes, and sends how long that took, in ms."""
    request = MetadataRequest((MetadataRequestTopic(name=TOPIC),), allow_auto_topic_creation=False)
    with socket.create_connection((host, port)) as broker:
        broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while asked.recv():
            begun_s = time.perf_counter()
            frame = encode_request_header(ApiKey.METADATA, _VERSION, 1, "bare") + request.encode(_VERSION)
            broker.sendall(_LENGTH.pack(len(frame)) + frame)
            (length,) = _LENGTH.unpack(broker.recv(_LENGTH.size, socket.MSG_WAITALL))
            broker.recv(length, socket.MSG_WAITALL)
            asked.send((time.perf_counter() - begun_s) * 1000)


class BareProcess:
    """A process that asks a broker over a plain socket, as long as it is entered."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._pipe, its = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=ask_by_socket, args=(host, int(port), its), daemon=True
        )

    def __enter__(self) -> BareProcess:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send(False)
        self._process.join()

    def ask_ms(self) -> float:
        """Returns how long an answer took, in ms."""
        self._pipe.send(True)
        taken_ms: float = self._pipe.recv()
        return taken_ms


def row(name: str, times_ms: Sequence[float]) -> tuple[object, ...]:
    """Returns a row of the table: how many, p50, p99, and the longest."""
    ordered = sorted(times_ms)
    p99 = ordered[math.ceil(len(ordered) * 0.99) - 1]
    return name, len(ordered), *(f"{each:.2f}" for each in (ordered[len(ordered) // 2], p99, ordered[-1]))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--each", type=float, default=10, help="seconds between the look-ups of a sidecar")
    each_s = parser.parse_args().each
    sparse_ms, again_ms, bare_ms, first_ms, later_ms = [], [], [], [], []
    with ExitStack() as stack:
        kafka = stack.enter_context(three_brokers())
        callers, processes = [], []
        addresses = kafka.bootstrap_servers.split(",")
        for number in range(SIDECARS):
            processes.append(stack.enter_context(BareProcess(addresses[number % len(addresses)])))
            one = stack.enter_context(sidecar(kafka.bootstrap_servers, warm_topics=[TOPIC]))
            callers.append(http.client.HTTPConnection("127.0.0.1", one.port))
        begun_s = time.monotonic() + each_s
        for number in range(LOOK_UPS):
            time.sleep(max(begun_s + number * each_s / SIDECARS - time.monotonic(), 0))
            caller = callers[number % SIDECARS]
            sparse_ms.append(look_up_ms(caller))
            again_ms.append(look_up_ms(caller))
            bare_ms.append(processes[number % SIDECARS].ask_ms())
        time.sleep(_TOO_OLD_S)
        for broker_id in kafka.broker_ids:
            kafka.pause(broker_id)
        for caller in callers:
            first_ms.append(look_up_ms(caller))
            later_ms += [look_up_ms(caller) for _ in range(3)]
        for broker_id in kafka.broker_ids:
            kafka.resume(broker_id)  # a stopped one would not end
    table(
        f"look-ups of {SIDECARS} sidecars",
        ("look-up", "n", "p50 ms", "p99 ms", "longest ms"),
        [
            row(f"one in {each_s:g} s", sparse_ms),
            row("again at once", again_ms),
            row("a broker asked by a plain socket, as seldom", bare_ms),
            row("all brokers stopped, the first", first_ms),
            row("all brokers stopped, those after it", later_ms),
        ],
    )


if __name__ == "__main__":
    main()
