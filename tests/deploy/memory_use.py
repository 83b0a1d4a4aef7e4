"""How much memory a sidecar takes: fresh, with 10,000 partitions, after 50 MB of produce, and overloaded.

The sidecar is started as a user does, in a process of its own, against the fake cluster in this one. `peak`
is the kernel's high-water mark of the process (VmHWM), to which a container's limit applies. Overloaded
means: brokers take records and never answer, and callers go on until all limits of the sidecar are reached.
"""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import httpx

from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPICS: Final = 100
PARTITIONS: Final = 100
PRODUCED_BYTES: Final = 50_000_000
_RECORD_BYTES: Final = 1_000
_RECORDS: Final = 500
_CALLERS: Final = 8
#: More than buffer.memory and max_waiting_bytes together can hold, in bodies of a megabyte.
_JAM_BYTES: Final = 160_000_000
_JAM_CALLERS: Final = 160
_MIB: Final = 1024 * 1024


class Memory(NamedTuple):
    """RSS in MiB at a moment, and the most it has been until then."""

    moment: str
    now_mib: float
    peak_mib: float


def measure(folder: Path) -> Sequence[Memory]:
    """Starts everything, does all of it once, and ends it. Some half a minute."""
    seen: list[Memory] = []
    with FakeCluster(brokers=3) as cluster:
        names = [f"wide-{number:03d}" for number in range(TOPICS)]
        for name in names:
            cluster.create_topic(name, partitions=PARTITIONS)
        cluster.create_topic("orders", partitions=6)
        with Sidecar(folder, bootstrap_servers=cluster.bootstrap_servers) as sidecar:
            wait_until(lambda: sidecar.admin.get("/readyz").is_success, what="a sidecar that is ready")
            seen.append(_memory("fresh", sidecar))
            for name in names:
                assert len(sidecar.api.get(f"/v1/topics/{name}").json()["partitions"]) == PARTITIONS
            seen.append(_memory(f"{TOPICS * PARTITIONS:,} partitions known", sidecar))
            _produce(sidecar)
            seen.append(_memory(f"{PRODUCED_BYTES // 1_000_000} MB produced", sidecar))
            _jam(sidecar, cluster)
            seen.append(_memory("brokers that never answer", sidecar))
    return seen


def _memory(moment: str, sidecar: Sidecar) -> Memory:
    status = Path(f"/proc/{sidecar.process.pid}/status").read_text()
    kib = {
        name: int(value) for name, value in re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.MULTILINE)
    }
    return Memory(moment, kib["VmRSS"] / 1024, kib["VmHWM"] / 1024)


def _body(records: int) -> dict[str, object]:
    value = "x" * _RECORD_BYTES
    return {"value_format": "text", "records": [{"value": value} for _ in range(records)]}


def _produce(sidecar: Sidecar) -> None:
    """So many bytes of records, from callers at a time."""
    body = _body(_RECORDS)

    def once(_: int) -> int:
        return sidecar.api.post("/v1/topics/orders/records", json=body).status_code

    with ThreadPoolExecutor(_CALLERS) as callers:
        codes = list(callers.map(once, range(PRODUCED_BYTES // (_RECORD_BYTES * _RECORDS))))
    assert set(codes) == {200}


def _jam(sidecar: Sidecar, cluster: FakeCluster) -> None:
    """Requests of a megabyte, each on a connection of its own, until the sidecar refuses more."""
    hold = cluster.hold_next(ApiKey.PRODUCE, times=1_000)
    refused = threading.Event()
    codes: list[int] = []

    def once(_: int) -> None:
        answer = httpx.post(
            f"{sidecar.api_url}/v1/topics/orders/records",
            json=_body(_JAM_BYTES // _JAM_CALLERS // _RECORD_BYTES),
            params={"max_block_ms": "15000", "timeout_ms": "20000"},
            timeout=60,
        )
        codes.append(answer.status_code)
        if answer.status_code == 429:
            refused.set()

    callers = ThreadPoolExecutor(_JAM_CALLERS)
    try:
        waiting = [callers.submit(once, number) for number in range(_JAM_CALLERS)]
        if not refused.wait(timeout=60):
            raise AssertionError("the sidecar refused nothing: the jam was too small")
        for one in waiting:
            one.result(timeout=90)
    finally:
        hold.release()
        callers.shutdown()
    assert set(codes) <= {200, 429, 503, 504}, sorted(set(codes))
