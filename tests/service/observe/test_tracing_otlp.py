"""Tracing of a whole sidecar: spans at a collector, none if it is off, and an error if it can't work.

The sidecar is a process of its own and the collector a server on loopback; brokers are the fake cluster's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from client_core.testing import FakeCluster
from tests.support.otlp_receiver import OtlpReceiver, attributes_of
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRACE_ID: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = f"00-{TRACE_ID}-b7ad6b7169203331-01"
SOON: Final = {"OTEL_BSP_SCHEDULE_DELAY": "50"}


@contextmanager
def traced_sidecar(folder: Path, url: str, **environment: str) -> Iterator[tuple[Sidecar, FakeCluster]]:
    with FakeCluster(brokers=1) as kafka:
        kafka.create_topic("orders", partitions=1)
        said = {"PILOTFISH_TRACING": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": url, **SOON, **environment}
        with Sidecar(folder, bootstrap_servers=kafka.bootstrap_servers, environment=said) as sidecar:
            yield sidecar, kafka


def produce(sidecar: Sidecar) -> None:
    answer = sidecar.api.post(
        "/v1/topics/orders/records", json={"records": [{"value": 1}]}, headers={"traceparent": PARENT}
    )
    assert answer.status_code == 200


def test_spans_of_a_produce_arrive_with_their_sender_and_the_record_names_it(tmp_path: Path) -> None:
    with (
        OtlpReceiver() as collector,
        traced_sidecar(
            tmp_path,
            collector.url,
            OTEL_EXPORTER_OTLP_HEADERS="api-key=hunter2",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
            PILOTFISH_SIDECAR_ID="pod-1",
        ) as (sidecar, kafka),
    ):
        produce(sidecar)
        wait_until(lambda: any(span.name == "send orders" for span in collector.spans), what="the spans")
        wait_until(lambda: any(span.name.startswith("POST") for span in collector.spans), what="the spans")
        send = next(span for span in collector.spans if span.name == "send orders")
        server = next(span for span in collector.spans if span.name.startswith("POST"))
        assert (send.trace_id.hex(), send.parent_span_id) == (TRACE_ID, server.span_id)
        assert server.parent_span_id.hex() == "b7ad6b7169203331"
        assert attributes_of(send.attributes)["messaging.kafka.offset"] == 0
        (record,) = kafka.records("orders")
        assert dict(record.headers)["traceparent"] == f"00-{TRACE_ID}-{send.span_id.hex()}-01".encode()
        who = collector.resource
        assert {"service.name": "pilotfish", "service.instance.id": "pod-1"}.items() <= who.items()
        assert who["deployment.environment.name"] == "test"
        assert collector.headers["api-key"] == "hunter2"
        # They count once the collector's answer has come.
        wait_until(
            lambda: (sidecar.metric("pilotfish_tracing_spans_exported_total") or 0) >= 2, what="their count"
        )
        assert sidecar.terminate() == 0
        assert "hunter2" not in sidecar.log()


def test_a_collector_that_is_away_costs_produce_nothing_and_is_logged_once(tmp_path: Path) -> None:
    with OtlpReceiver() as gone:
        url = gone.url
    with traced_sidecar(tmp_path, url) as (sidecar, _):
        for _ in range(3):
            produce(sidecar)
            failed = sidecar.metric("pilotfish_tracing_spans_dropped_total", reason="export_failed") or 0
            wait_until(
                lambda failed=failed: (  # type: ignore[misc]  # mypy knows no defaults of lambdas
                    (sidecar.metric("pilotfish_tracing_spans_dropped_total", reason="export_failed") or 0)
                    > failed
                ),
                what="spans given up",
            )
        assert sidecar.log().count("spans can't be sent") == 1
        assert "connection refused" in sidecar.log()
        assert sidecar.log().count("level=warning") == 1


def test_spans_that_still_wait_are_sent_within_the_drain_time(tmp_path: Path) -> None:
    with (
        OtlpReceiver() as collector,
        traced_sidecar(
            tmp_path, collector.url, OTEL_BSP_SCHEDULE_DELAY="600000", OTEL_SERVICE_NAME="checkout"
        ) as (sidecar, _),
    ):
        produce(sidecar)
        assert collector.spans == []
        assert sidecar.terminate() == 0
        assert {"send orders"} < {span.name for span in collector.spans}
        assert collector.resource["service.name"] == "checkout"


def run(*arguments: str, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """`pilotfish serve` that ends by itself, after some lines of Python."""
    program = f"{before}\nimport sys\nfrom service.__main__ import main\nsys.argv[1:] = {arguments!r}\nmain()"
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


SERVE: Final = ("serve", "--api-port", "0", "--admin-port", "0", "--kafka", "bootstrap.servers=127.0.0.1:1")


def test_without_the_extra_the_start_says_how_to_install_it() -> None:
    # What the extra brings; FastAPI itself needs opentelemetry-api.
    missing = "import sys; sys.modules['opentelemetry.sdk'] = sys.modules['opentelemetry.exporter'] = None"
    ended = run(*SERVE, "--tracing", "otlp", before=missing)
    assert ended.returncode == 2
    assert "tracing: otlp needs OpenTelemetry" in ended.stderr
    assert "install pilotfish with its extra otel" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_limit_of_the_queue_that_is_wrong_ends_the_start() -> None:
    ended = run(*SERVE, "--tracing", "otlp", OTEL_BSP_MAX_QUEUE_SIZE="often")
    assert ended.returncode == 2
    assert "OTEL_BSP_MAX_QUEUE_SIZE: must be a whole number of at least 1, got 'often'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_nothing_of_it_is_loaded_where_it_is_off() -> None:
    program = (
        "import sys, service.process.server\n"
        "from service.process.app import App\n"
        "from service.base.settings import Settings\n"
        "App(Settings(kafka={'bootstrap.servers': 'localhost:9092'}))\n"
        "assert not [name for name in sys.modules "
        "if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter', 'service.observe.tracing', "
        "'google.protobuf', 'requests'))]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
