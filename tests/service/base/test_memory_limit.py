"""The memory limit is that of the process's cgroup, v1 or v2; buffers that are not given are sized for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from service.base.memory_limit import LEAST_BYTES, bytes_needed, fitted, memory_limit
from service.base.settings import InternalLimits, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MIB: Final = 1024 * 1024
V1_MOUNT: Final = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V2_MOUNT: Final = "40 31 0:41 {root} /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw"
NO_LIMIT_V1: Final = str(2**63 - 4096)


def machine(root: Path, cgroup: str, mount: str, limits: Mapping[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/mountinfo").write_text(f"22 1 0:20 / /proc rw - proc proc rw\n{mount}\n")
    for name, limit in limits.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    return root


@pytest.mark.parametrize(
    ("cgroup", "mount", "limits", "limit"),
    [
        ("0::/\n", V2_MOUNT.format(root="/"), {"memory.max": "134217728"}, 128 * MIB),
        ("0::/\n", V2_MOUNT.format(root="/"), {"memory.max": "max"}, None),
        ("0::/\n", V2_MOUNT.format(root="/"), {}, None),
        (
            "0::/pod/own\n",
            V2_MOUNT.format(root="/"),
            {"pod/memory.max": "100", "pod/own/memory.max": "200"},
            100,
        ),
        (
            "4:memory:/a/b\n0::/\n",
            V1_MOUNT.format(root="/"),
            {"memory/a/b/memory.limit_in_bytes": "300"},
            300,
        ),
        (
            "4:memory:/kubepods/own\n",
            V1_MOUNT.format(root="/kubepods/own"),
            {"memory/memory.limit_in_bytes": "400"},
            400,
        ),
        ("4:memory:/host/only\n", V1_MOUNT.format(root="/x"), {"memory/memory.limit_in_bytes": "500"}, 500),
        ("4:memory:/\n", V1_MOUNT.format(root="/"), {"memory/memory.limit_in_bytes": NO_LIMIT_V1}, None),
    ],
)
def test_the_limit_is_the_smallest_on_the_way_from_the_own_group_to_the_top(
    tmp_path: Path, cgroup: str, mount: str, limits: Mapping[str, str], limit: int | None
) -> None:
    assert memory_limit(machine(tmp_path, cgroup, mount, limits)) == limit


def test_a_volume_whose_name_is_in_no_encoding_hides_no_limit(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/\n", V2_MOUNT.format(root="/"), {"memory.max": "134217728"})
    with (root / "proc/self/mountinfo").open("ab") as mounts:
        mounts.write(b"23 1 0:21 / /data/\xfcbung rw - ext4 /dev/sda rw\n")
    assert memory_limit(root) == 128 * MIB


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None


def settings(kafka: Mapping[str, str] | None = None, **own: Any) -> Settings:
    return Settings(**own, kafka={"bootstrap.servers": "a:1", **(kafka or {})})


@pytest.mark.parametrize("mib", [96, 128, 180, 250, 256, 300, 320, 1024])
def test_what_is_derived_fits_and_is_reported(mib: int) -> None:
    found = fitted(settings(), mib * MIB)
    buffers = found.settings.producer_config().buffer_memory
    waiting, streams = found.settings.max_waiting_bytes, found.settings.max_streams
    connections = found.settings.internal.max_connections
    assert (
        75 * MIB + 1.9 * (buffers + waiting) + 360 * 1024 * streams + 24 * 1024 * (connections - 100)
        <= mib * MIB * 1.01
    )
    assert found.settings.max_waiting_requests in (10_000, int(connections * 0.75))
    assert found.settings.max_streams + found.settings.max_watchers < connections
    assert found.reported.startswith(f"sized for the memory limit of {mib} MiB: buffer.memory={buffers} ")
    assert f"max_waiting_bytes={found.settings.max_waiting_bytes} " in found.reported
    assert not found.doubt
    assert found.settings.max_body_bytes <= found.settings.max_waiting_bytes
    assert (found.settings.max_streams == 100) == (mib >= 320)
    is_usual = found.settings == settings() and found.settings.internal == InternalLimits()
    assert is_usual == (mib >= 1024) == found.reported.endswith("the defaults")


def test_beyond_the_defaults_memory_is_for_connections() -> None:
    rows = [
        (found.internal.max_connections, found.max_waiting_requests, found.max_waiting_bytes // MIB)
        for found in (fitted(settings(), mib * MIB).settings for mib in (96, 320, 321, 512, 1024))
    ]
    assert rows == [
        (179, 134, 5),
        (1_000, 750, 64),
        (1_042, 781, 64),
        (9_192, 6_894, 64),
        (10_000, 10_000, 64),
    ]
    given = fitted(settings(max_waiting_requests=5_000, max_watchers=50), 96 * MIB).settings
    assert (given.max_waiting_requests, given.max_watchers, given.internal.max_connections) == (
        5_000,
        50,
        179,
    )


def test_without_a_limit_nothing_is_derived() -> None:
    assert fitted(settings(), None) == (settings(), "", "")


def test_given_sizes_stay_and_the_others_share_the_rest() -> None:
    given = settings({"buffer.memory": str(40 * MIB)}, max_body_bytes=5 * MIB)
    found = fitted(given, 200 * MIB)
    assert found.settings.producer_config().buffer_memory == 40 * MIB
    assert found.settings.max_body_bytes == 5 * MIB
    assert "buffer.memory" not in found.reported
    assert found.settings.max_waiting_bytes == pytest.approx(
        64 * MIB * (200 - 75 - 1.9 * 40) / (1.9 * 64 + 0.35 * 100 + 0.0234 * 900), rel=0.02
    )


def test_streams_that_are_given_take_their_part() -> None:
    few, many = (fitted(settings(max_streams=n), 128 * MIB).settings for n in (1, 100))
    assert (few.max_streams, many.max_streams) == (1, 100)
    assert few.max_waiting_bytes - many.max_waiting_bytes == pytest.approx(
        99 * 360 * 1024 * 64 / (1.9 * 96 + 0.0234 * 900), rel=0.01
    )
    assert "or lower max_streams" in fitted(settings(max_streams=200), 128 * MIB).doubt


def test_a_spool_and_an_event_log_take_their_part() -> None:
    plain = fitted(settings(), 200 * MIB).settings.max_waiting_bytes
    assert fitted(settings(spool_folder="/spool"), 200 * MIB).settings.max_waiting_bytes < plain
    assert fitted(settings(events_topic="events"), 200 * MIB).settings.max_waiting_bytes < plain


def test_the_largest_record_still_fits() -> None:
    found = fitted(settings({"max.request.size": str(10 * MIB)}), 128 * MIB)
    assert found.settings.producer_config().buffer_memory == 10 * MIB


def test_settings_that_can_not_fit_are_doubted_with_a_remedy() -> None:
    assert fitted(settings(), LEAST_BYTES - 1).doubt == (
        "the memory limit of 95 MiB is too small for these settings: raise it to 96 MiB; the kernel may kill "
        "the process"
    )
    large = settings({"buffer.memory": str(128 * MIB)}, max_waiting_bytes=100 * MIB)
    assert (
        "raise it to 513 MiB, or lower buffer.memory and max_waiting_bytes" in fitted(large, 256 * MIB).doubt
    )
    assert not fitted(large, bytes_needed(large)).doubt
