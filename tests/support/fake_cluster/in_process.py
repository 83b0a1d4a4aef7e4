"""The fake cluster without sockets: a request's bytes in, a broker's answer out.

    brokers = InProcessBrokers(3)
    brokers.state.controller.create_topic("orders", partitions=3)
    sending = brokers.answer(1, payload)            None where nothing is answered (acks=0)

For volume: thousands of answers a second, in a test's own thread and time. The same modules answer as in
cluster.py, and the same hostility may spoil their answers. Reactions and the death of brokers are left out.
"""

from __future__ import annotations

import struct
from random import Random
from typing import TYPE_CHECKING, Final

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_request_header, encode_response_header
from client_core.testing import api_versions, requests
from client_core.testing.broker import EndConnectionError
from client_core.testing.metadata_cache import AliveBroker, MetadataCache
from client_core.testing.reactions import Reaction, Sending
from client_core.testing.sasl import SaslSession
from client_core.testing.state import ClusterState

if TYPE_CHECKING:
    from client_core.testing.api_versions import Versions
    from tests.support.fake_cluster.hostile import Hostility

_SIZE: Final = struct.Struct(">i")
FIRST_PORT: Final = 9_001
HOST: Final = "10.0.0.1"


class InProcessBrokers:
    """Brokers 1..n at one address, at the ports from FIRST_PORT on. One thread."""

    def __init__(
        self, brokers: int = 3, *, versions: Versions = api_versions.KAFKA_4_3, seed: int = 0
    ) -> None:
        self.state = ClusterState(Random(seed), cluster_id="in-process")
        self.hostility: Hostility | None = None
        self.ports = {FIRST_PORT + n: n + 1 for n in range(brokers)}
        self._versions = versions
        for port, broker_id in self.ports.items():
            cache = MetadataCache()
            self.state.caches[broker_id] = cache
            self.state.controller.broker_started(AliveBroker(broker_id, HOST, port), cache)

    def answer(self, broker_id: int, payload: bytes) -> Sending | None:
        """What the broker sends for a request frame without its size. SchemaError for what is none."""
        header = decode_request_header(payload)
        api, version = header.api, header.version
        reaction = self.reaction(broker_id, api)
        if api is ApiKey.API_VERSIONS:
            response: requests.Response | None
            response, version = api_versions.answer(self._versions, payload, version, header.body_offset)
        else:
            low, high = self._versions.get(api.id, (0, -1))
            if not low <= version <= high:
                return Sending(then_close=True)
            try:
                request = requests.decode(header, payload)
                response = requests.answer(self.state, broker_id, request, version, SaslSession())
            except EndConnectionError:
                return Sending(then_close=True)
        if response is None:
            return None
        body = reaction.encode(response, version)
        head = encode_response_header(api, version, header.correlation_id)
        return reaction.shape(_SIZE.pack(len(head) + len(body)) + head + body)

    def reaction(self, broker_id: int, api: ApiKey) -> Reaction:
        """What happens to the next answer."""
        return Reaction() if self.hostility is None else self.hostility.next_answer(broker_id, api)
