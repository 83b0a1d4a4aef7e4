from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.producer.incomplete_batches import IncompleteBatches
from client_core.producer.producer_batch import ProducerBatch
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.producer.batches import tp
from tests.support.loop_thread import LoopThread
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from collections.abc import Callable


def new_batch() -> ProducerBatch:
    return ProducerBatch(tp(0), MemoryRecordsBuilder(100), 0)
