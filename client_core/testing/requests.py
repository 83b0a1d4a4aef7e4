"""Decodes a request and calls its API's module.

Called by the cluster under its lock, on its loop; pure except for the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.error_codes import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.messages.describe_configs_request import DescribeConfigsRequest
from client_core.protocol.messages.describe_configs_response import DescribeConfigsResponse
from client_core.protocol.messages.init_producer_id_request import InitProducerIdRequest
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse
from client_core.protocol.messages.list_offsets_request import ListOffsetsRequest
from client_core.protocol.messages.list_offsets_response import ListOffsetsResponse
from client_core.protocol.messages.metadata_request import MetadataRequest
from client_core.protocol.messages.metadata_response import MetadataResponse
from client_core.protocol.messages.produce_request import ProduceRequest
from client_core.protocol.messages.produce_response import ProduceResponse
from client_core.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from client_core.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from client_core.testing import describe_configs, list_offsets, metadata, produce, sasl
from client_core.testing.broker import EndConnectionError

if TYPE_CHECKING:
    from client_core.protocol.header import RequestHeader
    from client_core.testing.sasl import SaslSession
    from client_core.testing.state import ClusterState

Request = (
    MetadataRequest
    | ProduceRequest
    | InitProducerIdRequest
    | DescribeConfigsRequest
    | ListOffsetsRequest
    | SaslHandshakeRequest
    | SaslAuthenticateRequest
)
Response = (
    ApiVersionsResponse
    | MetadataResponse
    | ProduceResponse
    | InitProducerIdResponse
    | DescribeConfigsResponse
    | ListOffsetsResponse
    | SaslHandshakeResponse
    | SaslAuthenticateResponse
)
_REQUESTS: Final[dict[ApiKey, type[Request]]] = {
    ApiKey.METADATA: MetadataRequest,
    ApiKey.PRODUCE: ProduceRequest,
    ApiKey.INIT_PRODUCER_ID: InitProducerIdRequest,
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequest,
    ApiKey.LIST_OFFSETS: ListOffsetsRequest,
    ApiKey.SASL_HANDSHAKE: SaslHandshakeRequest,
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateRequest,
}
#: ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE.
_PRODUCER_IDS_IN_A_BLOCK: Final = 1_000
_SASL: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class SeenRequest(NamedTuple):
    """A request that reached a broker; `message` is None for ApiVersions."""

    broker_id: int
    api: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    message: Request | None


def decode(header: RequestHeader, payload: bytes) -> Request:
    """Returns the request's message. Raises EndConnectionError for an unsupported API."""
    message = _REQUESTS.get(header.api)
    if message is None:
        raise EndConnectionError
    return message.decode(payload, header.version, header.body_offset)


def check_session(state: ClusterState, session: SaslSession, api: ApiKey) -> None:
    """Raises EndConnectionError for a request that is not allowed before authentication."""
    if state.sasl is None:
        if api in _SASL:
            raise EndConnectionError
    elif api not in _SASL and not session.may_ask(state.wall_ms()):
        raise EndConnectionError


def is_refusal(response: Response) -> bool:
    """Returns whether a broker ends the connection after this response."""
    return isinstance(response, (SaslHandshakeResponse, SaslAuthenticateResponse)) and bool(
        response.error_code
    )


def answer(
    state: ClusterState, broker_id: int, request: Request, version: int, session: SaslSession
) -> Response | None:
    """Returns a broker's response; None without one. Raises EndConnectionError if the broker disconnects."""
    if isinstance(request, SaslHandshakeRequest):
        assert state.sasl is not None
        return sasl.handshake(session, state.sasl, request)
    if isinstance(request, SaslAuthenticateRequest):
        assert state.sasl is not None
        return sasl.authenticate(session, state.sasl, request, version, state.wall_ms())
    if isinstance(request, MetadataRequest):
        return metadata.answer(state, broker_id, request, version)
    if isinstance(request, InitProducerIdRequest):
        return _init_producer_id(state, broker_id, request)
    if isinstance(request, DescribeConfigsRequest):
        return describe_configs.answer(state, broker_id, request)
    if isinstance(request, ListOffsetsRequest):
        return list_offsets.answer(state, broker_id, request)
    return produce.answer(state, broker_id, request, version)


def _init_producer_id(
    state: ClusterState, broker_id: int, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Returns a new producer id from the broker's block, or an error."""
    if state.init_producer_id_errors:
        return InitProducerIdResponse(error_code=state.init_producer_id_errors.popleft())
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code)
    given = state.producer_ids_given.get(broker_id, 0)
    state.producer_ids_given[broker_id] = given + 1
    return InitProducerIdResponse(producer_id=broker_id * _PRODUCER_IDS_IN_A_BLOCK + given, producer_epoch=0)
