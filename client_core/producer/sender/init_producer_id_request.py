"""InitProducerId as NetworkClient wants it: the request that gets an idempotent producer its id (IDM-01).

Pure. Made by Sender. Source: InitProducerIdRequest.Builder, TransactionManager, Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.init_producer_id_request import InitProducerIdRequest
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse

#: Without a transactional id the broker looks at no timeout; Java sends the largest one.
_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1


class InitProducerIdRequestBuilder:
    """Asks for a new producer id, without a transactional id."""

    @property
    def api(self) -> ApiKey:
        return ApiKey.INIT_PRODUCER_ID

    @property
    def oldest_allowed_version(self) -> int:
        return ApiKey.INIT_PRODUCER_ID.min_version

    @property
    def latest_allowed_version(self) -> int:
        return ApiKey.INIT_PRODUCER_ID.max_version

    def encode(self, version: int) -> bytes:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        return request.encode(version)

    def decode_response(self, body: bytes, version: int) -> InitProducerIdResponse:
        return InitProducerIdResponse.decode(body, version)
