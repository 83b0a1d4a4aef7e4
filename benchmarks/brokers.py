"""The three real brokers that the produce benchmarks share, and the topics on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.kraft import KraftCluster

TOPIC: Final = "bench"
PARTITIONS: Final = 6
