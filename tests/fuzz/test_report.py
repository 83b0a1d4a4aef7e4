"""The figures of a long run: kept, read again, and as a table for the documentation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.fuzz.decoders import GROUPS
from tests.fuzz.long_run import answers, decoders
from tests.fuzz.report import inputs_tried_table
from tests.fuzz.results import Part, Run
from tests.fuzz.target import Target

if TYPE_CHECKING:
    from pathlib import Path

_RUN = Run(
    7,
    "3.11.0",
    [
        Part("heads", "inputs", 12_345, 345, 12_000, [], 9, {"decoders": 3}),
        Part("sidecars", "lives", 2, faults=["seed 7: late"], notes={"requests": 1_000, "MB at most": 90}),
    ],
)


def test_the_table_has_a_row_for_each_part_and_names_the_seed() -> None:
    assert inputs_tried_table(_RUN).splitlines() == [
        "| part | tried | read | refused as documented | faults | besides |",
        "|---|--:|--:|--:|--:|---|",
        "| heads | 12,345 inputs | 345 | 12,000 | 0 | 3 decoders |",
        "| sidecars | 2 lives |  |  | 1 | 1,000 requests, 90 MB at most |",
        "",
        "Seed 7, Python 3.11.0; `make fuzz` makes the same inputs from the same seed.",
    ]


def test_a_run_is_read_as_it_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    _RUN.write(path)
    assert Run.read(path) == _RUN
    assert Run.read(path).faults == 1


def test_the_run_that_is_kept_tried_everything() -> None:
    run = Run.read()
    names = [part.name for part in run.parts]
    assert names[: len(GROUPS)] == list(GROUPS)
    assert run.faults == 0
    assert all(part.inputs for part in run.parts)
    assert sum(part.inputs for part in run.parts if part.name in GROUPS) >= 100_000
    for part in run.parts[: len(GROUPS)]:
        assert part.read is not None
        assert part.refused is not None
        assert part.read + part.refused + len(part.faults) == part.inputs


def test_the_table_that_is_kept_has_the_shape_of_a_table() -> None:
    head, rule, *rows, blank, seed = inputs_tried_table().splitlines()
    assert {line.count("|") for line in (head, rule, *rows)} == {7}
    assert all(re.fullmatch(r"\| [^|]+ \| [\d,]+ [a-z]+ \|.*", row) for row in rows)
    assert (blank, seed.startswith("Seed ")) == ("", True)


def test_a_part_goes_on_behind_a_fault_and_tells_what_makes_it_again() -> None:
    def read(data: bytes) -> None:
        if len(data) % 2:
            raise KeyError(len(data))

    target = Target("odd", lambda random: random.randbytes(random.randrange(9)), read, ())
    part = decoders("group", [target], "5", 0.001, lambda: None)
    assert part.inputs >= 50
    assert part.read is not None
    assert part.read + len(part.faults) == part.inputs
    assert re.match(r"seed 5, input \d+: odd: KeyError", part.faults[0])
    assert answers(1, 0.0, lambda: None).inputs > 50
