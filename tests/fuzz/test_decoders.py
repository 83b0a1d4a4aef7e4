"""Each decoder on some hostile input: read, or refused as documented. `make fuzz` tries many more."""

from __future__ import annotations

from random import Random
from typing import Final

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.fuzz.decoders import ALL, GROUPS
from tests.fuzz.target import DeliveryOutcome, FaultError, Target, deadline, judge

#: How many inputs a group gets, shared by its targets.
_EXAMPLES: Final = 600


@pytest.mark.parametrize(
    ("target", "examples"),
    [
        pytest.param(target, max(_EXAMPLES // len(group), 8), id=target.name)
        for group in GROUPS.values()
        for target in group
    ],
)
def test_hostile_input_is_read_or_refused_as_documented(target: Target, examples: int) -> None:
    @hypothesis.settings(max_examples=examples, database=None, phases=[hypothesis.Phase.generate])
    @hypothesis.given(st.integers(0, 2**32))
    def survive(seed: int) -> None:
        alarm.begin()
        judge(target, target.input(Random(seed)), weighs=seed % 16 == 0)

    with deadline() as alarm:
        survive()


def test_spoilt_input_was_valid_before() -> None:
    """Checks that not every input is refused at its first byte."""
    for target in ALL:
        made = (target.make(Random(seed)) for seed in range(200))
        assert any(judge(target, one) is DeliveryOutcome.READ for one in made), target.name


def test_targets_have_names_that_a_seed_can_hang_on() -> None:
    assert len({target.name for target in ALL}) == len(ALL)
    assert not [target.name for target in ALL if " at 0x" in target.name]


def _refusing(data: bytes) -> None:
    raise ValueError("\udc80" if data == b"surrogate" else "no")


def _kept(data: bytes) -> None:
    assert len(bytearray(int(data))) == int(data)


def test_a_decoder_that_raises_another_error_is_reported() -> None:
    refusing = Target("refusing", lambda _: b"", _refusing, (ValueError,))
    assert judge(refusing, b"x") is DeliveryOutcome.REFUSED
    with pytest.raises(FaultError, match="can't be shown"):
        judge(refusing, b"surrogate")
    with pytest.raises(FaultError, match="ValueError: no"):
        judge(Target("raising", lambda _: b"", _refusing, (KeyError,)), b"x")
    keeping = Target("keeping", lambda _: b"", _kept, ())
    assert judge(keeping, b"100000", weighs=True) is DeliveryOutcome.READ
    with pytest.raises(FaultError, match="6 bytes took"):
        judge(keeping, b"999999", weighs=True)


def test_a_decoder_that_goes_on_for_ever_is_ended() -> None:
    def go_on(data: bytes) -> None:
        alarm.begin()
        while True:
            pass

    with deadline(0.01) as alarm, pytest.raises(FaultError, match="not over"):
        judge(Target("endless", lambda _: b"", go_on, (Exception,)), b"")
