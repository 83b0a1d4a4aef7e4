"""A sidecar as a user runs it, with events in a folder: killed, started again, ended; and wrong folders."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from service.__main__ import main
from service.process.embedded import EmbeddedCluster
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from pathlib import Path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_a_killed_sidecar_told_is_finished_by_the_next_and_that_one_ends_in_order(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "events"
    flags = ["--events-folder", str(folder), "--sidecar-id", "pod-1", "--service-name", "shop"]
    flags += ["--events-window-ms", "1000"]
    with (
        EmbeddedCluster(topics=("orders",)) as cluster,
        Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers, flags=flags) as sidecar,
    ):
        assert sidecar.produce("orders", [{"value": "x"}] * 3).status_code == 200
        wait_until(
            lambda: sidecar.metric("pilotfish_events_total", type="produce.window"),
            what="a window",
        )
        wait_until(lambda: not sidecar.metric("pilotfish_events_waiting_bytes"), what="an empty queue")
        (being_written,) = folder.iterdir()
        assert being_written.name.startswith(".events-pod-1-")
        sidecar.process.kill()
        sidecar.process.wait(timeout=patient(30))
        with being_written.open("a") as file:
            file.write('{"v":1,"type":"hear')
        sidecar.start()
        wait_until(lambda: not being_written.exists(), what="the first file to be finished")
        assert sidecar.produce("orders", [{"value": "x"}]).status_code == 200
        assert sidecar.terminate() == 0
    first, second = sorted(folder.iterdir())
    assert {"events", "pod", "1"} <= set(first.name.split("-"))
    windows = [event for event in lines(first) if event["type"] == "produce.window"]
    assert sum(window["records"] for window in windows) == 3
    assert {event["service"] for event in lines(first)} == {"shop"}
    reported = lines(second)
    assert [event["seq"] for event in reported] == list(range(1, len(reported) + 1))
    assert (reported[0]["type"], reported[-1]["type"]) == ("heartbeat", "heartbeat")
    assert sum(event["records"] for event in reported if event["type"] == "produce.window") == 1
    assert reported[0]["boot_id"] > lines(first)[0]["boot_id"]
    assert second.name == f"events-pod-1-{reported[0]['boot_id']:016x}-000001.jsonl"


def test_a_folder_that_can_not_be_used_ends_the_start_with_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "service", "serve", "--kafka", "bootstrap.servers=127.0.0.1:9"]
    command += ["--api-port", "0", "--admin-port", "0", "--events-folder", str(tmp_path / "file")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert ended.returncode == 2
    assert "events_folder: can't write files into" in ended.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--events-topic", "a/b"], "pilotfish: events_topic: "),
        (["--sidecar-id", "a b"], "pilotfish: sidecar_id: "),
        (["--events-heartbeat-ms", "1"], "pilotfish: events_heartbeat_ms: "),
    ],
)
def test_a_wrong_setting_of_events_is_named(flags: list[str], said: str) -> None:
    ended = CliRunner().invoke(main, ["serve", "--kafka", "bootstrap.servers=broker:9092", *flags])
    assert ended.exit_code == 2
    assert said in ended.output
