"""Earlier findings do not occur again. A finding is kept so that it can be tried again. The figures of a long
run are kept, read again, and printed as a table.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.fuzz.broker_lies import answers, survived, survived_over_sockets
from tests.fuzz.corpus import ANSWERS, HTTP, PRODUCERS, SOCKETS, Finding, findings, smaller
from tests.fuzz.decoders import ALL, GROUPS
from tests.fuzz.http_listener import KAFKA, SETTINGS, HttpFaultError, bytes_hold
from tests.fuzz.http_prober import Prober
from tests.fuzz.long_run import answers as answers_part
from tests.fuzz.long_run import decoders
from tests.fuzz.report import inputs_tried_table
from tests.fuzz.results import Part, Run
from tests.fuzz.target import FaultError, Target, deadline, judge
from tests.support.running_server import RunningServer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SEEDS: Final = {ANSWERS: answers, PRODUCERS: survived, SOCKETS: survived_over_sockets}


def replayed(kept: Sequence[Finding]) -> None:
    """Tries each again. Raises what it breaks."""
    targets = {target.name: target for target in ALL}
    for finding in kept:
        if finding.target in _SEEDS:
            _SEEDS[finding.target]((int(finding.input),))
        elif finding.target != HTTP:
            with deadline() as alarm:
                alarm.begin()
                judge(targets[finding.target], finding.input, weighs=True)
    sent = [finding.input for finding in kept if finding.target == HTTP]
    if sent:
        asyncio.run(_sent_again(sent))


async def _sent_again(inputs: Sequence[bytes]) -> None:
    running = RunningServer(
        kafka={"bootstrap.servers": "localhost:9092", "linger.ms": "0", **KAFKA}, **SETTINGS
    )
    running.producer.on_brokers = {"orders": 3}
    async with running.clients():
        prober = Prober(("127.0.0.1", running.api_port))
        for sent in inputs:
            await bytes_hold(prober, sent)
        await prober.is_answered()


def test_earlier_findings_do_not_occur_again() -> None:
    replayed(list(findings()))


def test_each_kind_of_finding_is_tried_again() -> None:
    kept = [Finding(kind, b"1", "") for kind in _SEEDS]
    replayed([*kept, Finding(HTTP, b"GET /v1/cluster HTTP/1.1\r\nHost: a\r\n\r\n", ""), _broken(ALL[0])])
    with pytest.raises(KeyError):
        replayed([Finding("no such decoder", b"", "")])


def _broken(target: Target) -> Finding:
    return Finding(target.name, b"\xff" * 9, "KeyError")


def test_bytes_that_a_server_answers_as_it_must_not_are_kept_with_the_fault() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Oh\r\n\r\n")
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            await bytes_hold(Prober(server.sockets[0].getsockname()), b"GET")

    with pytest.raises(HttpFaultError, match=r"\[500\]: b'GET'") as caught:
        asyncio.run(run())
    assert caught.value.sent == b"GET"


def test_a_finding_is_kept_once_and_read_as_it_was(tmp_path: Path) -> None:
    finding = Finding("JAAS config", b"\x00\xff", "KeyError: '\udc80'")
    assert finding.write(tmp_path) == finding.write(tmp_path)
    assert list(findings(tmp_path)) == [finding._replace(broke="KeyError: '\\udc80'")]
    assert finding._replace(input=b"").name != finding.name


def _read(data: bytes) -> None:
    if b"\x07" in data:
        raise KeyError("seven")


def test_an_input_is_made_smaller_while_it_breaks_the_same() -> None:
    target = Target("seven", lambda random: random.randbytes(60), _read, ())
    assert smaller(target, b"a" * 300 + b"\x07" + b"b" * 200) == b"\x07"
    assert smaller(target, b"sound") == b"sound"


def test_a_run_keeps_some_of_each_kind_of_fault_lasts_its_time_and_prints_how_to_repeat_it() -> None:
    target = Target("seven", lambda random: random.randbytes(60), _read, ())
    part = decoders("group", [target], "5", 0.001, lambda: None)
    assert len(part.faults) > len(part.findings) == 3
    assert {finding.input for finding in part.findings} == {b"\x07"}
    for finding in part.findings:
        with pytest.raises(FaultError, match="KeyError"):
            judge(target, finding.input)
    assert part.inputs >= 50
    assert part.read is not None
    assert part.read + len(part.faults) == part.inputs
    assert re.match(r"seed 5, input \d+: seven: KeyError", part.faults[0])
    assert answers_part(1, 0.0, lambda: None).inputs > 50


# -- the figures ---------------------------------------------------------------------------------------------

_RUN: Final = Run(
    7,
    "3.11.0",
    [
        Part("heads", "inputs", 12_345, 345, 12_000, [], 9, {"decoders": 3}),
        Part("sidecars", "lives", 2, faults=["seed 7: late"], notes={"requests": 1_000, "MB at most": 90}),
    ],
)


def test_the_table_has_a_row_for_each_part_and_names_the_seed() -> None:
    assert inputs_tried_table(_RUN).splitlines() == [
        "| part | tried | faults |",
        "|---|--:|--:|",
        "| heads | 12,345 inputs | 0 |",
        "| sidecars | 2 lives | 1 |",
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
    assert {line.count("|") for line in (head, rule, *rows)} == {4}
    assert all(re.fullmatch(r"\| [^|]+ \| [\d,]+ [a-z]+ \|.*", row) for row in rows)
    assert (blank, seed.startswith("Seed ")) == ("", True)
