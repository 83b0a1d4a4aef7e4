"""The trace finds the Produce requests of a conversation, however its bytes come, and their answers."""

from __future__ import annotations

import pytest

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import encode_request_header, encode_response_header
from client_core.protocol.messages.metadata_request import MetadataRequest
from client_core.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from client_core.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.chaos.trace import BatchId, SentBatch, WireTrace
from tests.support.tcp_peers import frame

VERSION = 12


def batch(sequence: int, *records: bytes) -> bytes:
    """The head of a batch, as far as the trace reads it, and something like records."""
    head = bytes(43) + (7).to_bytes(8) + (2).to_bytes(2) + sequence.to_bytes(4)
    return head + b"".join(b"\x01#%b#..." % record for record in records)


@pytest.mark.parametrize("piece", [1, 7, 1_000])
def test_records_lead_to_every_batch_that_held_them_and_its_answer(piece: int) -> None:
    data = (PartitionProduceData(0, batch(5, b"a/1", b"a/2")), PartitionProduceData(3, batch(9, b"b/1")))
    produce = ProduceRequest(None, -1, 30_000, (TopicProduceData("t", partition_data=data),)).encode(VERSION)
    requests = (
        frame(encode_request_header(ApiKey.METADATA, 12, 1, "c") + MetadataRequest().encode(12)),
        frame(encode_request_header(ApiKey.PRODUCE, VERSION, 2, "c") + produce),
        frame(encode_request_header(ApiKey.PRODUCE, VERSION, 3, "c") + produce),
    )
    reported = (PartitionProduceResponse(0, 45), PartitionProduceResponse(3, 0))
    answer = ProduceResponse((TopicProduceResponse("t", partition_responses=reported),)).encode(VERSION)
    sent, answered = b"".join(requests), frame(encode_response_header(ApiKey.PRODUCE, VERSION, 2) + answer)
    trace = WireTrace()
    conversation = trace.conversation(1)
    for at in range(0, len(sent), piece):
        conversation.request_bytes(sent[at : at + piece])
    for at in range(0, len(answered), piece):
        conversation.answer_bytes(answered[at : at + piece])
    of_a, of_b = BatchId(0, 7, 2, 5), BatchId(3, 7, 2, 9)
    assert trace.of_value(b"#a/2#....") == (SentBatch(1, of_a, 45), SentBatch(1, of_a))
    assert trace.of_value(b"#b/1#") == (SentBatch(1, of_b, 0), SentBatch(1, of_b))
    assert trace.of_value(b"#c/1#") == trace.of_value(b"java-1") == ()
    assert trace.has_error(7, frozenset({45, 59}))
    assert not trace.has_error(8, frozenset({45, 59}))
