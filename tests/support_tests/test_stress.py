from __future__ import annotations

from tests.stress import Ran, command, left

WANTED = {"whole": 2, "no-brokers": 1}


def test_all_is_to_be_run_when_nothing_is_known_of_this_commit() -> None:
    fresh = [("whole", None), ("whole", None), ("no-brokers", None)]
    assert left(WANTED, "b", []) == fresh
    assert left(WANTED, "b", [Ran("whole", 1, "a", True), Ran("no-brokers", 2, "a", False)]) == fresh


def test_what_passed_is_not_run_again_and_what_failed_is_run_with_its_seed() -> None:
    ran = [Ran("whole", 1, "a", True), Ran("no-brokers", 2, "a", False)]
    assert left(WANTED, "a", ran) == [("whole", None), ("no-brokers", 2)]
    ran += [Ran("whole", 3, "a", False), Ran("no-brokers", 2, "a", True)]
    assert left(WANTED, "a", ran) == [("whole", 3)]
    assert left(WANTED, "a", [*ran, Ran("whole", 3, "a", True)]) == []


def test_a_failed_seed_is_run_again_though_others_have_passed() -> None:
    passed = [Ran("no-brokers", seed, "a", True) for seed in (1, 2)]
    assert left({"no-brokers": 1}, "a", [*passed, Ran("no-brokers", 3, "a", False)]) == [("no-brokers", 3)]


def test_both_seeds_are_in_the_command() -> None:
    words = command("no-brokers", 7, 60, ["tests/values"])
    assert {"--randomly-seed=7", "--hypothesis-seed=7", "--timeout=60"} < set(words)
    assert words[-1] == "tests/values"
