"""What the Java producer beside a sidecar tells, and the longest time that it had no success."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.java import JavaMissingError
from tests.support.java import require_compiler
from tests.support.java_peer import Completed, completed, longest_gap_ms

if TYPE_CHECKING:
    from pathlib import Path


def test_a_line_is_a_record_that_was_acknowledged_or_failed() -> None:
    assert completed("2 1000 1005 ok 7\n") == Completed(2, 1000, 1005, None, 7)
    assert completed("0 1000 121000 TimeoutException -1\n") == Completed(
        0, 1000, 121_000, "TimeoutException", None
    )


def test_the_longest_gap_is_the_worst_partitions() -> None:
    successes = [(0, 1_100), (1, 1_100), (0, 1_400), (1, 1_700), (0, 1_800)]
    assert longest_gap_ms(successes, 2, 1_000, 2_000) == 600


def test_the_windows_ends_count_as_successes() -> None:
    assert longest_gap_ms([(0, 1_300)], 1, 1_000, 2_000) == 700
    assert longest_gap_ms([(0, 1_900)], 1, 1_000, 2_000) == 900


def test_a_partition_without_any_success_has_the_whole_window() -> None:
    assert longest_gap_ms([(0, number) for number in range(1_000, 2_000, 10)], 2, 1_000, 2_000) == 1_000


def test_successes_count_when_they_came_in_whatever_order_they_are_told() -> None:
    assert longest_gap_ms([(0, 1_900), (0, 500), (0, 1_500), (0, 2_500)], 1, 1_000, 2_000) == 500


def test_a_runtime_without_a_compiler_is_said_so(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho java.base@17.0.15\n", encoding="utf-8")
    java.chmod(0o755)
    with pytest.raises(JavaMissingError, match="default-jdk-headless"):
        require_compiler(java)
