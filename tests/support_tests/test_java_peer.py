"""What the Java producer beside a sidecar tells, and the longest time that it had no success."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from pipeline.java import JavaMissingError
from tests.support.java import require_compiler
from tests.support.java_peer import Completed, JavaPeer, JavaPeerError, completed, longest_gap_ms
from tests.support.kafka_home import KafkaHome
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

#: Speaks as ChaosPeer.java does, and keeps what it was told.
_SPEAKS: Final = """
echo ready
while read -r word name value; do
  echo "$word $name $value" >> told
  case $word in
    start) echo "0 1000 1100 ok 0"; echo "1 1000 1200 ok 0"; echo "0 1100 1900 TimeoutException -1";;
    mark) echo "mark $name 2000";;
    quit) echo "1 1800 1900 ok 1"; echo end;;
  esac
done
"""


def _peer(folder: Path, program: str) -> JavaPeer:
    """A peer whose Java is a shell's script, for a topic of two partitions."""
    java = folder / "java"
    modules = '[ "$1" = --list-modules ] && echo jdk.compiler@17 && exit'
    java.write_text(f"#!/bin/sh\n{modules}\ncd {folder}\n{program}", encoding="utf-8")
    java.chmod(0o755)
    return JavaPeer(KafkaHome(java, []), folder, "kafka.test:9092", "t", 2, 10, {"max.block.ms": "5"})


def test_a_peer_is_started_asked_and_ended(tmp_path: Path) -> None:
    with _peer(tmp_path, _SPEAKS) as peer:
        wait_until(lambda: len(peer.results()) == 3, what="what was completed", every_s=0.001)
        assert peer.mark() == 2_000
        assert peer.acknowledged() == 2
        assert peer.longest_gap_ms(1_000, 2_000) == 900
        peer.quit()
        peer.quit()
        assert peer.acknowledged() == 3
        assert peer.longest_gap_ms(1_000, 2_000) == 900
        assert peer.results()[2] == Completed(0, 1_100, 1_900, "TimeoutException", None)
    reported = (tmp_path / "told").read_text().split("\n")
    assert [line.split()[0] for line in reported if line] == ["set", "start", "mark", "mark", "quit"]
    assert reported[0] == "set max.block.ms 5"


def test_a_peer_that_ends_by_itself_is_told_with_its_complaint(tmp_path: Path) -> None:
    with pytest.raises(JavaPeerError, match="no such class"), _peer(tmp_path, "echo no such class >&2"):
        raise AssertionError("it is ready")


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
