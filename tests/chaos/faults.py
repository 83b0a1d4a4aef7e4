"""All faults, in the order in which they are played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.chaos import faults_access, faults_brokers, faults_network, faults_sidecar
from tests.chaos.combinations import combinations

if TYPE_CHECKING:
    from tests.chaos.fault import Fault

_COMBINED: Final = 5


def all_faults(seed: int) -> tuple[Fault, ...]:
    """Each alone, then the combinations that the seed draws, and brokers that move."""
    alone = (
        *faults_brokers.FAULTS,
        *faults_network.FAULTS,
        *faults_access.FAULTS,
        *faults_sidecar.FAULTS,
    )
    return (*alone, *combinations(_COMBINED, seed), *faults_brokers.MOVES)
