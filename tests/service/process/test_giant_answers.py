"""A broker answers with tens of megabytes that were not requested, or that no cluster has.

The sidecar keeps none of it, goes on answering, and logs which limit was exceeded, and by which broker.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Final

import pytest

from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster
from tests.fuzz.hostile_sidecar import memory_mb
from tests.support.giant_answers import ASKED, GIANTS, GiantAnswer
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from pathlib import Path

_BYTES: Final = 38_000_000
#: What the process may have in memory at most, ever: at rest it has some 90 MB.
MOST_MB: Final = 200
_TIMEOUT_MS: Final = 3_000
#: For the answer to a produce: its deadline, and patience for a machine that does other things too.
_PATIENCE_S: Final = patient(20.0)
_REFUSED: Final = re.compile(r"disconnected \(protocol_error\): .* more than \d+")
#: These are passed over, and what was asked for is there all the same.
_PASSED_OVER: Final = frozenset(
    {
        "partitions of topics that nobody asked for",
        "partitions of no regular size",
        "topics with long names",
        "in-sync replicas of partitions that nobody asked for",
    }
)


#: Of two answers for one topic the first counts: it is no true one, and it is small.
_FIRST_COUNTS: Final = frozenset(
    {
        "a topic that was asked for, again and again",
        "errors of a topic that was asked for",
    }
)


class _Probes:
    """Asks /livez again and again, on a thread of its own; `failed` are the answers that were not 200."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.failed: list[str] = []

    def __enter__(self) -> _Probes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._over.wait(0.05):
            answer = self._sidecar.admin.get("/livez")
            if answer.status_code != 200:
                self.failed.append(answer.text)


@pytest.mark.parametrize("name", GIANTS)
def test_a_giant_answer_takes_no_memory_and_stops_nobody(name: str, tmp_path: Path) -> None:
    giant = GiantAnswer(GIANTS[name](_BYTES))
    with FakeCluster(2) as cluster:
        cluster.create_topic(ASKED, partitions=2, replication_factor=2)
        cluster.react_next(ApiKey.METADATA, giant, times=1_000)
        with Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers) as sidecar:
            with _Probes(sidecar) as probes:
                produced = sidecar.api.post(
                    f"/v1/topics/{ASKED}/records",
                    params={"timeout_ms": str(_TIMEOUT_MS)},
                    json={"records": [{"value": 1}]},
                    timeout=_PATIENCE_S,
                )
            assert produced.status_code in (200, 503, 504), produced.text
            assert giant.sizes
            assert min(giant.sizes) > 30_000_000
            assert memory_mb(sidecar, "VmHWM:") <= MOST_MB
            assert not probes.failed
            if name in _PASSED_OVER:
                answer = sidecar.produce(ASKED, [{"value": "x"}])
                assert answer.status_code == 200, answer.text + sidecar.log()
            elif name not in _FIRST_COUNTS:
                # A slow machine may still read the giant when the produce has given up.
                wait_until(
                    lambda: _REFUSED.search(sidecar.log()),
                    what="a line that names the limit",
                    last_seen=sidecar.log,
                )
