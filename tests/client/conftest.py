"""What the tests of the client share: a client whose only node is ready."""

from __future__ import annotations

import pytest

from tests.client.client_builders import Bench


@pytest.fixture
def bench() -> Bench:
    """A client of one node, which is ready."""
    made = Bench()
    made.ready()
    return made
