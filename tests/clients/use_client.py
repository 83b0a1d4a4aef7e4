"""Typed calls with the generated Python client: produce, look up, watch. Arguments: a URL, a token."""

from __future__ import annotations

import sys
from io import BytesIO

from pilotfish_api.api.metadata import get_snapshot, get_topic, look_up_leader, poll_changes
from pilotfish_api.api.produce import produce_bytes, produce_records, produce_stream
from pilotfish_api.client import AuthenticatedClient
from pilotfish_api.models.changes_answer import ChangesAnswer
from pilotfish_api.models.leader_answer import LeaderAnswer
from pilotfish_api.models.problem_answer import ProblemAnswer
from pilotfish_api.models.produce_answer import ProduceAnswer
from pilotfish_api.models.produce_body import ProduceBody
from pilotfish_api.models.produce_record import ProduceRecord
from pilotfish_api.models.snapshot import Snapshot
from pilotfish_api.types import File, Unset


def main(url: str, token: str) -> None:
    client = AuthenticatedClient(base_url=url, token=token)

    body = ProduceBody(records=[ProduceRecord(key="customer-7", value={"total": 12.5})])
    produced = produce_records.sync("orders", client=client, body=body)
    assert isinstance(produced, ProduceAnswer), produced
    partition = produced.results[0].partition
    assert not isinstance(partition, Unset)
    assert isinstance(produced.results[0].error, Unset)

    value = File(payload=BytesIO(b"any bytes"))
    bytes_answer = produce_bytes.sync("orders", client=client, body=value, key="customer-7")
    assert isinstance(bytes_answer, ProduceAnswer), bytes_answer
    assert bytes_answer.results[0].partition == partition

    lines = File(payload=BytesIO(b'{"value":1}\n{"value":2}\n'))
    stream = produce_stream.sync("orders", client=client, body=lines)
    assert isinstance(stream, File), stream
    assert b'"acknowledged":2' in stream.payload.read()

    leader = look_up_leader.sync_detailed("orders", client=client, partition=partition)
    assert isinstance(leader.parsed, LeaderAnswer), leader
    assert leader.parsed.leader is not None
    assert leader.parsed.leader.host == "127.0.0.1"
    held = look_up_leader.sync_detailed(
        "orders", client=client, partition=partition, if_none_match=leader.headers["etag"]
    )
    assert held.status_code == 304

    missing = get_topic.sync("missing", client=client)
    assert isinstance(missing, ProblemAnswer), missing
    assert missing.kafka_error == "UNKNOWN_TOPIC_OR_PARTITION"

    snapshot = get_snapshot.sync(client=client)
    assert isinstance(snapshot, Snapshot), snapshot
    assert "orders" in [topic.name for topic in snapshot.topics]
    changes = poll_changes.sync(client=client, last_event_id=snapshot.version, max_block_ms=0)
    assert isinstance(changes, ChangesAnswer), changes
    assert changes.changes == []


if __name__ == "__main__":
    main(*sys.argv[1:])
