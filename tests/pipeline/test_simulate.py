"""The simulated fleet: the same for a seed, valid in the sidecar's format, and consistent with its truth."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from click.testing import CliRunner

from service.events import event_v1
from tests.pipeline.simulate import Plan, PlanError, plan_for, simulate, write
from tests.pipeline.simulate.__main__ import main
from tests.pipeline.simulate.delivery import BREAK

if TYPE_CHECKING:
    from pathlib import Path

PLAN = plan_for(6_000, 7, sidecars=9, topics=8, hours=0.9, clock_skew_s=0, duplicates=0.02, broken=0.01)
FILE = re.compile(r"events-(?P<sidecar_id>[\w-]+)-(?P<boot>[0-9a-f]{16})-\d{6}\.jsonl")
STRUCTS = dict(zip(event_v1.TYPE_NAMES, event_v1.TYPES, strict=True))

Event = dict[str, Any]


class Run(NamedTuple):
    """A run, read back."""

    folder: Path
    truth: dict[str, Any]
    #: Each sound line, in the order of files and lines, doubles too.
    lines: list[bytes]
    rejected: list[bytes]
    #: Each event once.
    events: list[Event]


def read_back(plan: Plan, folder: Path) -> Run:
    truth = write(plan, folder, folder.with_suffix(".truth.json"), processes=1)
    hashes = {broken["sha256"] for broken in json.loads(json.dumps(truth["rejected"]))}
    lines: list[bytes] = []
    rejected: list[bytes] = []
    for path in sorted(folder.iterdir()):
        for line in path.read_bytes().splitlines():
            (rejected if hashlib.sha256(line).hexdigest() in hashes else lines).append(line)
    events = [json.loads(line) for line in dict.fromkeys(lines)]
    events.sort(key=lambda event: (event["sidecar_id"], event["boot_id"], event["seq"]))
    return Run(folder, truth, lines, rejected, events)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_back(PLAN, tmp_path_factory.mktemp("simulated") / "events")


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


def epochs_seen(run: Run) -> list[Event]:
    return [e for e in run.events if e["type"] == "metadata.partition"]


def key_of(change: Event) -> tuple[str, int, int]:
    return change["topic_id"], change["partition"], change["leader_epoch"]


def test_a_seed_gives_the_same_bytes_with_any_number_of_processes(run: Run, tmp_path: Path) -> None:
    again = write(PLAN, tmp_path / "again", tmp_path / "truth.json", processes=2)
    assert again == run.truth
    files = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == files


def test_another_seed_gives_other_events(run: Run) -> None:
    theirs = {line.rstrip(b"\n") for line in simulate(replace(PLAN, seed=8))}
    assert theirs.isdisjoint([*run.lines, *run.rejected])


def test_the_lines_are_those_of_the_files(run: Run) -> None:
    assert Counter(simulate(PLAN)) == Counter(line + b"\n" for line in [*run.lines, *run.rejected])


def test_there_are_exactly_as_many_events_as_asked_for() -> None:
    for events in (500, 1_000, 4_321):
        plan = plan_for(events, broken=0, topics=3, sidecars=3, hours=0.3)
        assert len(set(simulate(plan))) == events


def test_every_event_is_one_that_a_sidecar_could_have_written(run: Run) -> None:
    """Decoded strictly and encoded again by the sidecar's own structures, it is the same text."""
    for line in run.lines:
        kind = STRUCTS[json.loads(line)["type"]]
        assert event_v1.encode(msgspec.json.decode(line, type=kind)) == line
    assert {event["type"] for event in run.events} == set(STRUCTS)


def test_numbers_are_missing_only_where_the_queue_dropped_events(run: Run) -> None:
    numbers: dict[int, list[int]] = defaultdict(list)
    for event in run.events:
        numbers[event["boot_id"]].append(event["seq"])
    boots = [boot for sidecar in run.truth["sidecars"] for boot in sidecar["boots"]]
    assert set(numbers) == {boot["boot_id"] for boot in boots}
    for boot in boots:
        seen = numbers[boot["boot_id"]]
        assert max(seen) - len(seen) == boot["last_seq"] - boot["events"] == boot["dropped"]
    assert sum(boot["dropped"] for boot in boots) > 0


def test_nobody_sees_an_epoch_before_it_began_or_with_another_leader(run: Run) -> None:
    true = {key_of(change): change for change in run.truth["leader_changes"]}
    for seen in epochs_seen(run):
        change = true[key_of(seen)]
        # Clocks differ by some milliseconds even where none is wrong.
        assert (time_of(seen["observed_at"]) - time_of(change["at"])).total_seconds() > -0.05
        assert seen["leader"] == (None if change["leader"] < 0 else change["leader"])
        assert seen["replicas"] == change["replicas"]
    assert len({key_of(seen) for seen in epochs_seen(run)}) > 0.9 * len(true)


def test_a_partition_is_emitted_again_only_when_its_state_differs(run: Run) -> None:
    reported: dict[tuple[int, str, int], list[Any]] = {}
    for event in epochs_seen(run):
        state = [event[field] for field in ("leader", "leader_epoch", "isr", "replicas", "offline")]
        key = (event["boot_id"], event["topic_id"], event["partition"])
        assert reported.get(key) != state
        reported[key] = state


def test_after_each_refresh_a_boot_has_emitted_the_state_of_the_cluster(run: Run) -> None:
    changes: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for change in run.truth["leader_changes"]:
        changes[change["topic_id"], change["partition"]].append(change)
    reported: dict[tuple[int, str, int], Event] = {}
    refreshed: dict[int, datetime] = {}
    for event in run.events:
        if event["type"] == "metadata.partition":
            reported[event["boot_id"], event["topic_id"], event["partition"]] = event
        elif event["type"] == "metadata.refresh" and event["outcome"] == "ok":
            refreshed[event["boot_id"]] = time_of(event["observed_at"])
    assert len(reported) > 200
    for (boot_id, topic_id, partition), event in reported.items():
        # What it had a second to see.
        seen_by = refreshed[boot_id] - timedelta(seconds=1)
        true = [c for c in changes[topic_id, partition] if time_of(c["at"]) <= seen_by]
        assert event["leader_epoch"] >= true[-1]["leader_epoch"]


def test_epochs_of_a_partition_ascend_in_time(run: Run) -> None:
    last: dict[tuple[str, int], int] = {}
    for change in run.truth["leader_changes"]:
        partition = (change["topic_id"], change["partition"])
        assert change["leader_epoch"] == last.get(partition, -1) + 1
        last[partition] = change["leader_epoch"]
    assert max(last.values()) > 3


def late_by_s(run: Run) -> dict[str, float]:
    """By sidecar: the longest time from an epoch's beginning until a boot reported it or a later one."""
    changes: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for change in run.truth["leader_changes"]:
        changes[change["topic_id"], change["partition"]].append(change)
    sights: dict[tuple[str, int], dict[tuple[str, int], list[Event]]] = defaultdict(lambda: defaultdict(list))
    for seen in epochs_seen(run):
        sights[seen["sidecar_id"], seen["boot_id"]][seen["topic_id"], seen["partition"]].append(seen)
    longest: dict[str, float] = defaultdict(float)
    for (sidecar_id, _), partitions in sights.items():
        for partition, reported in partitions.items():
            for earlier, later in itertools.pairwise(reported):
                for change in changes[partition]:
                    if earlier["leader_epoch"] < change["leader_epoch"] <= later["leader_epoch"]:
                        delay = time_of(later["observed_at"]) - time_of(change["at"])
                        longest[sidecar_id] = max(longest[sidecar_id], delay.total_seconds())
    return longest


def test_an_epoch_is_missed_for_two_intervals_exactly_where_a_sidecar_was_held_back(run: Run) -> None:
    late = late_by_s(run)
    beyond = {
        sidecar["sidecar_id"]
        for sidecar in run.truth["sidecars"]
        if late[sidecar["sidecar_id"]] > 2 * sidecar["metadata_max_age_ms"] / 1_000
    }
    assert beyond == {s["sidecar_id"] for s in run.truth["sidecars"] if s["delayed"]} != set()


def test_one_sidecar_falls_silent_and_one_service_is_deployed_again(run: Run) -> None:
    ends = Counter(boot["end"] for sidecar in run.truth["sidecars"] for boot in sidecar["boots"])
    assert ends == {"running": 8, "silence": 1, "goodbye": 3}
    last = {(e["sidecar_id"], e["boot_id"]): e for e in run.events}
    for sidecar in run.truth["sidecars"]:
        for boot in sidecar["boots"]:
            event = last[sidecar["sidecar_id"], boot["boot_id"]]
            assert (event["type"] == "heartbeat") or boot["end"] != "goodbye"


def test_topics_come_go_grow_and_begin_again(run: Run) -> None:
    changes = {event["change"] for event in run.events if event["type"] == "metadata.topic"}
    assert changes == {"appeared", "gone", "grew", "recreated"}
    lives = Counter(topic["topic"] for topic in run.truth["topics"])
    again = [name for name, count in lives.items() if count == 2]
    assert len(again) == 1
    assert len({topic["topic_id"] for topic in run.truth["topics"]}) == len(run.truth["topics"])


def test_there_is_a_broken_line_for_each_reason_and_none_that_the_truth_does_not_name(run: Run) -> None:
    assert set(run.truth["rejects"]) == set(BREAK)
    assert len(run.rejected) == sum(run.truth["rejects"].values())
    # Each sidecar rounds for itself.
    assert len(run.rejected) == pytest.approx(0.01 * PLAN.events, abs=PLAN.sidecars)


def test_doubles_are_counted_and_what_is_late_comes_in_a_later_file(run: Run) -> None:
    assert len(run.lines) - len(run.events) == run.truth["duplicates"] > 0
    assert run.truth["late"] > 0
    first_lines: dict[tuple[str, str], list[int]] = defaultdict(list)
    sound = set(run.lines)
    for path in sorted(run.folder.iterdir()):
        match = FILE.fullmatch(path.name)
        assert match is not None
        for line in path.read_bytes().splitlines():
            if line in sound:
                first_lines[match["sidecar_id"], match["boot"]].append(json.loads(line)["seq"])
    assert any(numbers != sorted(numbers) for numbers in first_lines.values())


def test_files_bear_the_names_that_a_sidecar_gives_them_and_the_time_of_their_last_line(run: Run) -> None:
    sidecars = {sidecar["sidecar_id"] for sidecar in run.truth["sidecars"]}
    boots = {f"{boot['boot_id']:016x}" for s in run.truth["sidecars"] for boot in s["boots"]}
    matches = [FILE.fullmatch(path.name) for path in run.folder.iterdir()]
    assert {match["sidecar_id"] for match in matches if match} == sidecars
    assert {match["boot"] for match in matches if match} == boots
    for path in run.folder.iterdir():
        closed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        assert time_of(run.truth["start"]) < closed
        assert (closed - time_of(run.truth["end"])).total_seconds() <= 300


def test_a_share_of_all_events_is_about_one_partition() -> None:
    plan = plan_for(10_000, skew=0.2, duplicates=0, late=0, broken=0)
    events = [json.loads(line) for line in simulate(plan)]
    hot = [e for e in events if (e.get("topic"), e.get("partition")) == ("orders", 0)]
    assert 0.18 < len(hot) / len(events) < 0.22


def test_a_broker_is_slow_and_its_batches_take_eight_times_as_long(run: Run) -> None:
    latencies: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    for event in run.events:
        if event["type"] == "produce.window" and not event["errors"] and not event["retries"]:
            for bucket, records in event["latency_us"].items():
                latencies[event["broker"] == run.truth["slow_broker"]][int(bucket)] += records
    slow, others = (_median(latencies[is_slow]) for is_slow in (True, False))
    # Four buckets are a doubling.
    assert 10 <= slow - others <= 15


def _median(buckets: Counter[int]) -> int:
    rank = sum(buckets.values()) // 2
    for bucket in sorted(buckets):
        rank -= buckets[bucket]
        if rank <= 0:
            return bucket
    raise AssertionError("empty")


def test_clocks_are_wrong_by_what_was_asked_for_and_without_churn_nothing_moves(tmp_path: Path) -> None:
    wrong = read_back(replace(PLAN, clock_skew_s=-600, churn=0), tmp_path / "events")
    assert {seen["leader_epoch"] for seen in epochs_seen(wrong)} == {0}
    offsets = {s["sidecar_id"]: s["clock_offset_ms"] for s in wrong.truth["sidecars"]}
    assert sorted(offsets.values())[0] == pytest.approx(-600_000, abs=50)
    assert [abs(offset) < 50 for offset in sorted(offsets.values())[1:]] == [True] * (PLAN.sidecars - 1)
    first = {e["sidecar_id"]: time_of(e["observed_at"]) for e in reversed(wrong.events)}
    start = time_of(wrong.truth["start"])
    ahead = {sidecar_id: (at - start).total_seconds() for sidecar_id, at in first.items()}
    assert [s for s, seconds in ahead.items() if seconds < -500] == [min(offsets, key=lambda s: offsets[s])]


def test_the_error_about_an_impossible_plan_names_the_number() -> None:
    wrong: dict[str, dict[str, Any]] = {
        "events is 0": {"events": 0},
        "sidecars is 0": {"sidecars": 0},
        "broken is 1.0": {"broken": 1.0},
        "hours is 0.0": {"hours": 0.0},
        "churn is -1.0": {"churn": -1.0},
        "at most 3000": {"clock_skew_s": 7200.0},
        "no time zone": {"end": datetime(2026, 9, 1, 12)},
    }
    for said, changes in wrong.items():
        with pytest.raises(PlanError, match=re.escape(said)):
            plan_for(**{"events": 1_000, **changes})


def test_a_plan_that_can_not_be_carried_out_says_what_would_do(tmp_path: Path) -> None:
    for plan, said in (
        (plan_for(100, topics=50), "ask for more events"),
        (plan_for(100_000, sidecars=3, hours=0.3, topics=3, partitions=3), "more sidecars, hours"),
    ):
        with pytest.raises(PlanError, match=said):
            write(plan, tmp_path / "events", tmp_path / "truth.json", processes=1)
        assert list(tmp_path.rglob("*.jsonl")) == []


def test_the_command_refuses_a_folder_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    ended = CliRunner().invoke(main, ["--out", str(tmp_path), "--events", "1000"])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "is not empty" in ended.stderr


def test_the_command_says_what_it_wrote_and_where_the_truth_is(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path / "events"), "--events", "1000", "--end", "2026-03-01T00:00:00+01:00"]
    ended = CliRunner().invoke(main, arguments)
    assert ended.exit_code == 0
    assert "1,000 events in 1,0" in ended.stdout
    truth = json.loads((tmp_path / "events.truth.json").read_text())
    assert truth["end"] == "2026-02-28T23:00:00.000000Z"


def test_an_end_without_a_time_zone_is_refused(tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, ["--out", str(tmp_path / "e"), "--end", "2026-03-01T00:00:00"])
    assert ended.exit_code == 2
    assert "no time zone" in ended.stderr
