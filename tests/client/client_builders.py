"""Shared by the tests of this folder: small requests, and a NetworkClient on a mock network.

`Bench` is a client, its selector and its clock. `ready` brings a node up the way a broker would, ApiVersions
included; `answer` replies to the oldest request that the node has not answered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Protocol

from client_core.client.in_flight_requests import InFlightRequest
from client_core.client.kafka_client import ClientRequest, ClientResponse, CompletionHandler
from client_core.client.metadata_updater import (
    DefaultMetadataUpdater,
    ManualMetadataUpdater,
    MetadataUpdater,
    RefreshFailure,
)
from client_core.client.network_client import NetworkClient
from client_core.client.network_client_config import MetadataRecoveryStrategy, NetworkClientConfig
from client_core.cluster import Node
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.protocol.api_keys import API_KEYS, ApiKey
from client_core.protocol.header import RequestHeader, decode_request_header, encode_response_header
from client_core.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from client_core.protocol.messages.produce_response import ProduceResponse
from tests.support.mock_clock import MockClock
from tests.support.mock_resolver import MockResolver
from tests.support.mock_selector import MockSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from client_core.client.host_resolver import NodeResolver
    from client_core.errors import AuthenticationError, KafkaError
    from client_core.events import Event
    from client_core.protocol.request import RequestBuilder

#: NetworkClientTest's settings, without jitter where a maximum equals its initial value.
TEST_CONFIG = NetworkClientConfig(
    client_id="mock",
    max_in_flight_requests_per_connection=1_000,
    reconnect_backoff_ms=10_000,
    reconnect_backoff_max_ms=10_000,
    send_buffer_bytes=131_072,
    receive_buffer_bytes=32_768,
    request_timeout_ms=1_000,
    connection_setup_timeout_ms=5_000,
    connection_setup_timeout_max_ms=5_000,
    metadata_recovery_strategy=MetadataRecoveryStrategy.REBOOTSTRAP,
    rebootstrap_trigger_ms=1_000,
)

NODE = Node(0, "broker-0", 9092)
NODE_1 = Node(1, "broker-1", 9092)
NODE_2 = Node(2, "broker-2", 9092)


class Message(Protocol):
    """A response that can be written."""

    def encode(self, version: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class PlainBuilder:
    """A builder whose body is what it was given; it reads a Produce answer, and any other as its bytes."""

    api: ApiKey = ApiKey.PRODUCE
    oldest_allowed_version: int = 3
    latest_allowed_version: int = 13
    body: bytes = b"body"

    def encode(self, version: int) -> bytes:
        return self.body

    def decode_response(self, body: bytes, version: int) -> object:
        return ProduceResponse.decode(body, version) if self.api is ApiKey.PRODUCE else body


def make_request(
    node_id: int = 1,
    correlation_id: int = 0,
    *,
    builder: RequestBuilder | None = None,
    request_timeout_ms: int = 1_000,
    created_ms: int = 0,
    expect_response: bool = True,
    on_complete: CompletionHandler | None = None,
) -> ClientRequest:
    return ClientRequest(
        node_id,
        PlainBuilder() if builder is None else builder,
        correlation_id,
        created_ms,
        expect_response,
        request_timeout_ms,
        on_complete,
    )


def make_in_flight(
    node_id: int = 1,
    correlation_id: int = 0,
    *,
    builder: RequestBuilder | None = None,
    version: int = 13,
    request_timeout_ms: int = 1_000,
    sent_ms: int = 0,
) -> InFlightRequest:
    request = make_request(node_id, correlation_id, builder=builder, request_timeout_ms=request_timeout_ms)
    return InFlightRequest(request, version, is_internal=False, sent_ms=sent_ms, sent_bytes=10)


def api_versions_response(
    overrides: Mapping[ApiKey, tuple[int, int]] | None = None, *, error_code: int = 0
) -> ApiVersionsResponse:
    """What a broker says that speaks all that we speak, but for the overrides."""
    ranges = {api: (api.min_version, api.max_version) for api in API_KEYS}
    ranges.update(overrides or {})
    keys = tuple(ApiVersion(api.id, lowest, highest) for api, (lowest, highest) in ranges.items())
    return ApiVersionsResponse(error_code, keys)


def frame_of(api: ApiKey, version: int, correlation_id: int, message: Message) -> bytes:
    return encode_response_header(api, version, correlation_id) + message.encode(version)


class RecordingUpdater(ManualMetadataUpdater):
    """Records its calls, as NetworkClientTest's TestMetadataUpdater does."""

    def __init__(self, nodes: Sequence[Node] = (NODE,)) -> None:
        super().__init__(nodes)
        self.disconnected: list[int] = []
        self.fatal: KafkaError | None = None
        self.failures: list[RefreshFailure] = []
        self.responses: list[object] = []
        self.is_closed = False
        self.is_due = False

    def is_update_due(self, now_ms: int) -> bool:
        return self.is_due

    def handle_server_disconnect(self, now_ms: int, node_id: int, fatal: AuthenticationError | None) -> None:
        self.disconnected.append(node_id)
        self.fatal = fatal or self.fatal

    def handle_failed_request(self, now_ms: int, failure: RefreshFailure) -> None:
        self.failures.append(failure)

    def handle_successful_response(self, now_ms: int, answered: InFlightRequest, response: object) -> None:
        self.responses.append(response)

    def close(self) -> None:
        self.is_closed = True


class CountingMetadata(Metadata):
    """Counts how often it begins again."""

    rebootstraps = 0

    def rebootstrap(self) -> None:
        super().rebootstrap()
        self.rebootstraps += 1


def counting_metadata() -> CountingMetadata:
    metadata = CountingMetadata(MetadataConfig(50, 50, 5_000), Random(0))
    metadata.bootstrap([("bootstrap", 9999)])
    return metadata


class RecordingSink:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event, /) -> None:
        self.events.append(event)

    def of(self, *kinds: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kinds)]


class Bench:
    """A client on a network that the test plays. `updater` None: over `metadata`, or over NODE alone."""

    def __init__(
        self,
        updater: MetadataUpdater | None = None,
        *,
        metadata: Metadata | None = None,
        config: NetworkClientConfig = TEST_CONFIG,
        resolver: NodeResolver | None = None,
        can_connect: Callable[[tuple[str, int]], bool] = lambda _: True,
        selector_class: type[MockSelector] = MockSelector,
        seed: int = 1,
        credentials_change: bool = False,
        **settings: object,
    ) -> None:
        """`credentials_change`: what is in force now is what the selector's `credentials` say."""
        config = replace(config, **settings)  # type: ignore[arg-type]
        self.clock = MockClock(now_ms=1_000_000)
        self.selector = selector_class(self.clock, can_connect=can_connect)
        self.sink = RecordingSink()
        self.resolver = resolver if resolver is not None else MockResolver("10.0.0.1")
        self.recorded = RecordingUpdater()
        if updater is None and metadata is None:
            updater = self.recorded
        elif metadata is not None:
            updater = DefaultMetadataUpdater(metadata, config, self.sink)
        elif isinstance(updater, RecordingUpdater):
            self.recorded = updater
        assert updater is not None
        self.updater = updater
        credentials = (lambda: self.selector.credentials) if credentials_change else None
        self.client = NetworkClient(
            self.selector, updater, config, self.resolver, Random(seed), self.sink, credentials
        )

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def poll(self, timeout_ms: int = 0) -> Sequence[ClientResponse]:
        return self.client.poll(timeout_ms, self.now_ms)

    def ready(self, node: Node = NODE, versions: ApiVersionsResponse | None = None) -> None:
        """Connects to the node and answers its ApiVersions request."""
        self.connect(node)
        if self.client.in_flight_request_count(node.id):
            self.answer(node.id, versions or api_versions_response())
            self.poll()
        assert self.client.can_send_request(node.id, self.now_ms), f"{node} did not become ready"

    def connect(self, node: Node = NODE) -> None:
        """Connects to the node; its ApiVersions request, if any, is sent and not answered."""
        assert not self.client.ready(node, self.now_ms)
        self.poll()
        self.poll()

    def send(
        self,
        node: Node = NODE,
        *,
        api: ApiKey = ApiKey.PRODUCE,
        request_timeout_ms: int | None = None,
        expect_response: bool = True,
        on_complete: CompletionHandler | None = None,
        is_sent: bool = True,
    ) -> ClientRequest:
        """Sends a request; `is_sent` polls once, so that it is out."""
        builder = PlainBuilder(api, api.min_version, api.max_version)
        request = self.client.new_client_request(
            node.id,
            builder,
            self.now_ms,
            expect_response=expect_response,
            request_timeout_ms=request_timeout_ms,
            on_complete=on_complete,
        )
        self.client.send(request, self.now_ms)
        if is_sent:
            self.poll()
        return request

    def headers(self, node_id: int = NODE.id) -> list[RequestHeader]:
        """The headers of all frames that the node was sent."""
        return [decode_request_header(payload) for payload in self.selector.sent_to(node_id)]

    def answer(
        self, node_id: int, message: Message, *, version: int | None = None, request: int = -1
    ) -> None:
        """Lets the node answer one of the requests it was sent, by default the last."""
        header = self.headers(node_id)[request]
        answered_version = header.version if version is None else version
        self.selector.receive(node_id, frame_of(header.api, answered_version, header.correlation_id, message))
