"""InitProducerId in the fake cluster: ids in blocks of a thousand for each broker, epoch 0.

Transactions are not played: a request with a transactional id is refused. Source:
KafkaApis.handleInitProducerIdRequest, RPCProducerIdManager, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from client_core.protocol.messages.init_producer_id_request import InitProducerIdRequest
    from tests.support.fake_cluster.state import ClusterState

#: ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE.
_BLOCK: Final = 1_000


def answer(state: ClusterState, broker_id: int, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A fresh producer id from the broker's block, or why not."""
    if state.init_producer_id_errors:
        return InitProducerIdResponse(error_code=state.init_producer_id_errors.popleft())
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code)
    given = state.producer_ids_given.get(broker_id, 0)
    state.producer_ids_given[broker_id] = given + 1
    return InitProducerIdResponse(producer_id=broker_id * _BLOCK + given, producer_epoch=0)
