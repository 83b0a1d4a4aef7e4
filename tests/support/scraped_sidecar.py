"""A scrape as Prometheus reads it, and a sidecar with nearly every series.

    scrape = Scrape.of(sidecar.admin.get("/metrics").text)
    scrape.labels("pilotfish_http_requests_total")     {"method", "route", "code"}

`busy_scrape` runs a sidecar on the fake cluster through look-ups, produces, records given up and a connection
that ends with a request: nearly every series is there then. Blocks; any thread.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from client_core import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Scrape:
    """The text, and the label sets of each sample by its name, `_bucket` and `_total` included.

    A family without a sample has its names too, with no label sets.
    """

    text: str
    samples: Mapping[str, list[Mapping[str, str]]]

    @staticmethod
    def of(text: str) -> Scrape:
        samples: dict[str, list[Mapping[str, str]]] = {}
        for family in text_string_to_metric_families(text):
            # The parser takes the suffix of a counter off.
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
            for suffix in suffixes.get(family.type, ("",)):
                samples[family.name + suffix] = []
            for sample in family.samples:
                samples.setdefault(sample.name, []).append(sample.labels)
        return Scrape(text, samples)

    def labels(self, name: str) -> set[str]:
        """The labels that any sample of this name has. KeyError where there is no such metric."""
        return {label for labels in self.samples[name] for label in labels}

    def has(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether there is a series with at least these labels."""
        return any(labels.items() <= series.items() for series in self.samples.get(name, ()))


def busy_scrape(folder: Path) -> Scrape:
    """After a look-up, produces, and failures of each kind."""
    flags = ["--topic-metrics", "--events-folder", str(folder / "events")]
    flags += ["--spool-folder", str(folder / "spool")]
    with FakeCluster(3) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        with Sidecar(
            folder,
            bootstrap_servers=cluster.bootstrap_servers,
            flags=flags,
            limits={"events_window_ms": 1_000},
        ) as sidecar:
            assert sidecar.api.get("/v1/topics/orders").is_success
            assert sidecar.produce("orders", [{"value": "a"}]).is_success
            cluster.fail_next_produces(Errors.INVALID_RECORD)
            assert sidecar.produce("orders", [{"value": "a"}]).is_error
            assert sidecar.produce("made-up", [{"value": "a"}], max_block_ms=50).is_error
            assert sidecar.api.get("/made-up").status_code == 404
            _lose_a_request(cluster, sidecar)
            return Scrape.of(sidecar.admin.get("/metrics").text)


def _lose_a_request(cluster: FakeCluster, sidecar: Sidecar) -> None:
    """A connection ends before a produce is answered over it; the batch is sent again over the next one."""
    before = len(cluster.requests(ApiKey.PRODUCE))
    held = cluster.hold_next(ApiKey.PRODUCE)
    with ThreadPoolExecutor(1) as caller:
        answer = caller.submit(sidecar.produce, "orders", [{"value": "a"}])
        asked = cluster.wait_for_requests(ApiKey.PRODUCE, before + 1)[-1]
        cluster.drop_connections(asked.broker_id)
        held.release()
        assert answer.result().is_success
