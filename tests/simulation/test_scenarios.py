"""The simulated brokers do in each scenario what real ones do."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_response_header, encode_request_header
from client_core.testing.controller import TopicConfig
from tests.simulation.brokers import ReplicatedBrokers
from tests.simulation.network import Connection
from tests.simulation.scenarios import PATIENT_MS, SCENARIOS, VERSION, Scenario, outcome, produce_request
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

_TOPIC: Final = "orders"
_PLACE: Final = (_TOPIC, 0)
_SIZE_BYTES: Final = 4


class _Caller:
    """The client's end of a connection, for one request."""

    name = "caller"

    def __init__(self) -> None:
        self.answer: bytes | None = None

    def answered(
        self, _connection: Connection, frame: bytes | None, arrives: Callable[[], None] = lambda: None
    ) -> None:
        assert frame is not None
        self.answer = frame[_SIZE_BYTES:]
        arrives()


class SimulatedBrokers:
    """Brokers: see scenarios.py."""

    def __init__(self, scenario: Scenario) -> None:
        self._world = World(1)
        self._brokers = ReplicatedBrokers(self._world, Random(1))
        self._scenario = scenario
        self._create()

    def _create(self) -> None:
        config = TopicConfig(min_insync_replicas=self._scenario.min_insync_replicas)
        self._brokers.create_topic(_TOPIC, 1, config, unclean=self._scenario.unclean)

    def produce(self, data: bytes, to: int = 1, *, acks: int = -1, timeout_ms: int = PATIENT_MS) -> str:
        header = encode_request_header(ApiKey.PRODUCE, VERSION, 1, None)
        request = header + produce_request(_TOPIC, data, acks, timeout_ms)
        caller = _Caller()
        connection = Connection(caller, to, to)  # type: ignore[arg-type]  # of the network `answered` is used
        self._brokers.take(connection, request, self._world.now_ms)
        self._until(lambda: caller.answer is not None)
        assert caller.answer is not None
        _, offset = decode_response_header(caller.answer, ApiKey.PRODUCE, VERSION)
        return outcome(caller.answer[offset:])

    def _until(self, condition: Callable[[], bool]) -> None:
        assert self._world.run_until(condition, 2 * PATIENT_MS)

    def wall_ms(self) -> int:
        return self._brokers.wall_ms()

    def kill(self, broker_id: int) -> None:
        self._brokers.kill(broker_id)

    def start(self, broker_id: int) -> None:
        self._brokers.start(broker_id)

    def pause(self, broker_id: int) -> None:
        self._brokers.stick(broker_id)

    def resume(self, broker_id: int) -> None:
        self._brokers.go_on(broker_id)

    def await_isr(self, *broker_ids: int) -> None:
        def are_in_sync() -> bool:
            true = self._brokers.true(_PLACE)
            return set(true.isr) == set(broker_ids) and true.leader in broker_ids

        self._until(are_in_sync)

    def await_session_end(self, broker_id: int) -> None:
        self._until(lambda: self._brokers.true(_PLACE).leader != broker_id)

    def leader(self) -> int | None:
        return self._brokers.true(_PLACE).leader

    def values(self, of: int | None = None) -> list[bytes]:
        leader = self._brokers.true(_PLACE).leader if of is None else of
        assert leader is not None
        return [record.value or b"" for record in self._brokers.replica(leader, _PLACE).log.records(0)]

    def make_again(self) -> None:
        self._brokers.delete_topic(_TOPIC)
        self._create()

    def forbid_writes(self) -> None:
        self._brokers.state.unwritable.add(_TOPIC)

    def allow_writes(self) -> None:
        self._brokers.state.unwritable.discard(_TOPIC)

    def throttle(self) -> None:
        self._brokers.throttle_ms[1] = 100


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_simulated_brokers_do_what_real_ones_do(scenario: Scenario) -> None:
    assert list(scenario.steps(SimulatedBrokers(scenario))) == scenario.expected
