"""The event log in the app: made of its settings, off unless asked for, and closed after the producer."""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

from service.base.settings import Settings
from service.events.event_metrics import EventMetrics
from service.events.from_settings import new_boot_id, sidecar_id
from tests.support.coroutine_tests import run
from tests.support.event_log_rig import EventLogRig
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def values(metrics: EventMetrics) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("pilotfish_events_"), *sample.labels.values()): sample.value
        for family in metrics.collect()
        for sample in family.samples
    }


def test_without_a_topic_and_a_folder_there_is_none_and_its_metrics_are_empty() -> None:
    web = HttpApp()
    assert web.app.event_log is None
    assert values(web.app.event_metrics) == {}


def test_nothing_of_it_is_loaded_then() -> None:
    program = (
        "import sys, service.process.server\n"
        "assert not [name for name in sys.modules if name.startswith('service.events.') "
        "and name not in ('service.process.app', 'service.events.event_metrics')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_with_a_folder_what_the_app_does_is_in_it_when_it_has_ended(tmp_path: Path) -> None:
    web = HttpApp(events_folder=str(tmp_path), sidecar_id="pod-1")

    async def live() -> None:
        async with web.app.api.router.lifespan_context(web.app.api):
            web.producer.set_topics({"orders": 3})
            web.producer.clock.advance(1_000)

    run(live())
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("events-pod-1-")
    assert path.read_text().count('"metadata.partition"') == 3
    assert values(web.app.event_metrics)["written_total", "files"] == 7


def test_the_metrics_tell_what_was_queued_lost_and_left_out() -> None:
    rig = EventLogRig(max_waiting_bytes=600)
    rig.producer.set_topics({"orders": 3})
    rig.kept.hangs = True
    rig.settle()
    seen = values(EventMetrics(rig.log))
    assert seen["total", "heartbeat"] == 1
    assert seen["waiting_bytes", "kept"] == rig.log.channels[0].outbox.waiting_bytes > 0
    rig.kept.hangs = False
    rig.settle()
    seen = values(EventMetrics(rig.log))
    assert seen["written_total", "kept"] + seen["dropped_total", "kept"] == sum(rig.log.queued.values())
    left_out = {labels for name, *labels_of in seen if name == "left_out_total" for labels in labels_of}
    assert left_out == {"batches", "snapshots", "notices"}


def test_a_sidecar_is_its_host_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "pod 7/x")
    assert sidecar_id(Settings()) == "pod-7-x"
    assert sidecar_id(Settings(sidecar_id="me")) == "me"


def test_a_boots_id_is_greater_than_that_of_an_earlier_second_and_fits_a_double() -> None:
    wall_ms = 1_795_255_200_000
    ids = [new_boot_id(wall_ms + 1_000 * n, Random(n)) for n in range(100)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 100
    assert new_boot_id((1 << 32) * 1_000 - 1, Random(0)) < 1 << 53
