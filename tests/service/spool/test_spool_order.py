"""What brokers refuse for a while is not overtaken: the records of a key keep their order.

The spool over a whole KafkaProducer and brokers in this process, in simulated time.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from client_core import Errors, ProducerRecord
from client_core.testing.controller import TopicConfig
from client_core.testing.produce import ProduceFault
from tests.support.spool_bench import SpoolBench

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS: Final = 3
KEYS: Final = 5
#: More than that the longest refusal lasts.
LONG_MS: Final = 200_000


def keyed(number: int, size: int) -> ProducerRecord:
    return ProducerRecord("orders", f"{number:05d}".encode() + b"x" * size, b"key-%d" % (number % KEYS))


def bench_of(folder: Path, seed: int = 5, **kafka: str) -> SpoolBench:
    bench = SpoolBench(folder, seed=seed, kafka={n.replace("_", "."): v for n, v in kafka.items()})
    bench.brokers.state.controller.create_topic("orders", partitions=PARTITIONS, replication_factor=1)
    return bench


def seen_by_key(bench: SpoolBench) -> dict[bytes, list[int]]:
    """The numbers of each key's records, in the order of the log."""
    found: dict[bytes, list[int]] = {}
    for partition in range(PARTITIONS):
        for one in bench.records("orders", partition):
            found.setdefault(one.key or b"", []).append(int((one.value or b"")[:5]))
    return found


def expected(count: int) -> dict[bytes, list[int]]:
    return {b"key-%d" % key: list(range(key, count, KEYS)) for key in range(KEYS)}


def refuse(bench: SpoolBench, error: Errors, times: int) -> None:
    """The next batches are refused so, whatever their partition."""
    bench.brokers.state.produce_faults.append(ProduceFault(error.code, times, "orders", None, False))


def test_a_record_that_is_too_large_for_some_seconds_is_overtaken_by_none_of_its_key(tmp_path: Path) -> None:
    bench = bench_of(tmp_path / "spool")
    controller = bench.brokers.state.controller
    controller.set_config("orders", TopicConfig(max_message_bytes=2_000))
    bench.rig.spool_in([keyed(n, 3_000 if n % 7 == 3 else 10) for n in range(100)])
    bench.live(5_000)
    in_between = seen_by_key(bench)
    assert 0 < sum(map(len, in_between.values())) < 100
    for key, numbers in in_between.items():
        assert numbers == expected(100)[key][: len(numbers)]
    assert bench.rig.spool.entries > 0
    controller.set_config("orders", TopicConfig())
    bench.live(5_000)
    assert seen_by_key(bench) == expected(100)
    assert (bench.rig.spool.entries, bench.rig.spool.aside.records) == (0, 0)


def test_behind_a_record_that_stays_too_large_the_others_go_on_in_order(tmp_path: Path) -> None:
    bench = bench_of(tmp_path / "spool")
    bench.brokers.state.controller.set_config("orders", TopicConfig(max_message_bytes=2_000))
    bench.rig.spool_in([keyed(n, 3_000 if n % 7 == 3 else 10) for n in range(100)])
    bench.live(LONG_MS)
    large = {n for n in range(100) if n % 7 == 3}
    assert seen_by_key(bench) == {
        key: [n for n in numbers if n not in large] for key, numbers in expected(100).items()
    }
    assert (bench.rig.spool.entries, bench.rig.spool.aside.records) == (0, len(large))


@pytest.mark.parametrize(
    "error",
    [
        Errors.TOPIC_AUTHORIZATION_FAILED,
        Errors.MESSAGE_TOO_LARGE,
        Errors.RECORD_LIST_TOO_LARGE,
        Errors.INVALID_RECORD,
        Errors.INVALID_TIMESTAMP,
        Errors.POLICY_VIOLATION,
        Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        Errors.INVALID_REQUIRED_ACKS,
        Errors.INVALID_TOPIC_EXCEPTION,
        Errors.UNKNOWN_SERVER_ERROR,
        Errors.NOT_ENOUGH_REPLICAS,
    ],
    ids=lambda error: error.name,
)
def test_each_refusal_that_passes_costs_no_record_and_no_order(tmp_path: Path, error: Errors) -> None:
    bench = bench_of(tmp_path / "spool")
    refuse(bench, error, times=25)
    for first in range(0, 200, 10):
        bench.rig.spool_in([keyed(n, 10) for n in range(first, first + 10)])
        bench.live(1_000)
    bench.live(30_000)
    assert seen_by_key(bench) == expected(200)
    assert (bench.rig.spool.entries, bench.rig.spool.aside.records) == (0, 0)


@pytest.mark.parametrize(
    ("codec", "seed"), [("none", 1), ("none", 3), ("none", 6), ("none", 9), ("gzip", 1), ("gzip", 10)]
)
def test_whatever_is_refused_for_how_long_the_records_of_a_key_keep_their_order(
    tmp_path: Path, codec: str, seed: int
) -> None:
    """Rights, limits and errors come and go; some last long enough for dead letters.

    With these seeds records were overtaken when a refused batch was split.
    """
    random = Random(seed)
    bench = bench_of(tmp_path / "spool", seed, compression_type=codec)
    state = bench.brokers.state
    count = 0
    for _ in range(60):
        match random.randrange(6):
            case 0:
                state.unwritable.add("orders")
            case 1:
                size = random.choice((200, 2_000, 20_000))
                state.controller.set_config("orders", TopicConfig(max_message_bytes=size))
            case 2:
                error = random.choice((Errors.INVALID_RECORD, Errors.UNKNOWN_SERVER_ERROR))
                refuse(bench, error, random.randrange(1, 4))
            case _:
                state.unwritable.clear()
                state.controller.set_config("orders", TopicConfig())
        burst = random.choice((1, 3, 40))
        sizes = (0, 0, 0, 150, 1_500, 15_000)
        bench.rig.spool_in([keyed(count + n, random.choice(sizes)) for n in range(burst)])
        count += burst
        bench.live(random.choice((20, 500, 3_000, 30_000)))
    state.unwritable.clear()
    state.controller.set_config("orders", TopicConfig())
    bench.live(LONG_MS)
    seen = seen_by_key(bench)
    for numbers in seen.values():
        assert numbers == sorted(set(numbers)), f"seed {seed}"
    stored = sum(map(len, seen.values()))
    assert (stored + bench.rig.spool.aside.records, bench.rig.spool.entries) == (count, 0)
