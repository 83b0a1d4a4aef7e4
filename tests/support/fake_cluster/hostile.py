"""Brokers that lie: in hostile mode every answer may be spoilt, in its values or in its bytes, by a seed.

    cluster.disturb(Hostility(seed=7))
    ... a client that must survive ...
    cluster.disturb(None)

The n-th answer of a broker depends on the seed, the broker and n alone. A hostile broker applies a request
and then lies about it. With `lasting` False it makes no lie whose effect outlives the hostility by Kafka's
own rules: a throttle that is longer than a moment, a refusal after which an idempotent producer does not try
again. Leader epochs are lied about all the same: a client that has seen 2^31 - 1 accepts no smaller one of
that topic. With `addresses` no answer names others: for clients that use the real network.

    python -m tests.support.fake_cluster.hostile --seeds 1000

runs a producer against it for longer than the tests do, and prints the seed of what it finds.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from client_core.error_codes import Errors
from client_core.errors import KafkaError, SchemaError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_response_header
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.messages.describe_configs_response import DescribeConfigsResponse
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse
from client_core.protocol.messages.list_offsets_response import ListOffsetsResponse
from client_core.protocol.messages.metadata_response import MetadataResponse
from client_core.protocol.messages.produce_response import ProduceResponse
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from client_core.protocol.request import throttle_time_ms
from client_core.testing.reactions import Reaction, Sending
from tests.support.fake_cluster.hostile_frames import spoilt
from tests.support.fake_cluster.hostile_values import mutated

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from client_core.testing.requests import Response

_SIZE_BYTES: Final = 4
#: What passes while a test looks on.
_MOMENT_MS: Final = 40
_FATAL: Final = frozenset({Errors.CLUSTER_AUTHORIZATION_FAILED.code, Errors.UNSUPPORTED_VERSION.code})

_RESPONSES: Final[dict[ApiKey, Any]] = {
    ApiKey.API_VERSIONS: ApiVersionsResponse,
    ApiKey.METADATA: MetadataResponse,
    ApiKey.PRODUCE: ProduceResponse,
    ApiKey.INIT_PRODUCER_ID: InitProducerIdResponse,
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsResponse,
    ApiKey.LIST_OFFSETS: ListOffsetsResponse,
    ApiKey.SASL_HANDSHAKE: SaslHandshakeResponse,
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateResponse,
}


class Hostility:
    """Decides answer by answer. Not thread-safe: the caller guards it."""

    def __init__(
        self,
        seed: int,
        *,
        rate: float = 0.6,
        lasting: bool = True,
        addresses: Collection[tuple[str, int]] | None = None,
    ) -> None:
        self.seed: Final = seed
        self.rate: Final = rate
        self.lasting: Final = lasting
        self.addresses: Final = None if addresses is None else frozenset(addresses)
        #: How many answers to each API were spoilt.
        self.spoilt_answers: Final[Counter[ApiKey]] = Counter()
        self._answers: Counter[int] = Counter()

    @property
    def spoilt(self) -> int:
        """How many answers were spoilt."""
        return self.spoilt_answers.total()

    def __repr__(self) -> str:
        return f"<Hostility seed={self.seed} spoilt={self.spoilt} of {self._answers.total()}>"

    def next_answer(self, broker_id: int, api: ApiKey) -> Reaction:
        """What becomes of a broker's next answer."""
        number = self._answers[broker_id]
        self._answers[broker_id] += 1
        random = Random(f"{self.seed}/{broker_id}/{number}")
        if random.random() >= self.rate:
            return Reaction()
        self.spoilt_answers[api] += 1
        in_values = random.random() < 0.5
        return HostileAnswer(random, api, self.lasting, in_values, self.addresses)


@dataclass(frozen=True, slots=True)
class HostileAnswer(Reaction):
    """Spoils one answer: its values, or its bytes."""

    random: Random
    api: ApiKey
    lasting: bool
    in_values: bool
    addresses: frozenset[tuple[str, int]] | None = None
    _version: list[int] = field(default_factory=list, init=False)

    def encode(self, response: Response, version: int) -> bytes:
        """The body, lies included where there are any that the version can carry."""
        self._version.append(version)
        if self.in_values:
            lie = mutated(response, self.random)
            try:
                if not self._spares(lie):
                    return lie.encode(version)
            except KafkaError:
                return response.encode(version)  # of all values that are absurd it chose one without bytes
        return response.encode(version)

    def shape(self, frame: bytes) -> Sending:
        if self.in_values:
            return Sending((frame,))
        sending = spoilt(frame, self.random)
        if any(map(self._spares_frame, sending.pieces)):
            return Sending((frame,))
        return sending

    def _spares(self, lie: Any) -> bool:
        """Whether this lie is left out."""
        if not self.lasting and outlasts(lie):
            return True
        return self.addresses is not None and not addresses_of(lie) <= self.addresses

    def _spares_frame(self, piece: bytes) -> bool:
        if not self._version or (self.lasting and self.addresses is None):
            return False
        version, payload = self._version[-1], piece[_SIZE_BYTES:]
        try:
            _, offset = decode_response_header(payload, self.api, version)
            return self._spares(_RESPONSES[self.api].decode(payload, version, offset))
        except SchemaError:
            return False


def outlasts(response: Any) -> bool:
    """Whether Kafka's rules keep a client from going on soon after it has read this."""
    if throttle_time_ms(response) > _MOMENT_MS:
        return True
    if isinstance(response, InitProducerIdResponse):
        code = response.error_code
        return code != Errors.NONE.code and not Errors.of(code).retriable
    if isinstance(response, ProduceResponse):
        partitions = (p for topic in response.responses for p in topic.partition_responses)
        return any(partition.error_code in _FATAL for partition in partitions)
    return False


def addresses_of(response: Any) -> frozenset[tuple[str, int]]:
    """Where an answer sends its client."""
    if isinstance(response, MetadataResponse):
        return frozenset((broker.host, broker.port) for broker in response.brokers)
    if isinstance(response, ProduceResponse):
        return frozenset((node.host, node.port) for node in response.node_endpoints)
    return frozenset()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs many seeds; the exit code is 1 when one of them was not survived."""
    from tests.support import hostile_runs

    parser = argparse.ArgumentParser(prog="python -m tests.support.fake_cluster.hostile", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", type=int, default=1_000, help="how many; %(default)s")
    parser.add_argument("--first", type=int, default=0, help="the first seed; %(default)s")
    parser.add_argument(
        "--sockets", action="store_true", help="real sockets and threads: slower by a factor of a hundred"
    )
    chosen = parser.parse_args(arguments)
    return hostile_runs.run_many(range(chosen.first, chosen.first + chosen.seeds), sockets=chosen.sockets)


if __name__ == "__main__":
    sys.exit(main())
