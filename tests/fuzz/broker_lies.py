"""Lies of brokers in every type of answer at every version, and whole producers that must survive them.

    answers(range(100))       an answer of each API and version for each seed, spoilt and read
    survived(range(100))      producers against lying brokers in simulated time; how many answers were spoilt
    survived_over_sockets     the same on real sockets, with SASL in turn

An answer is a message of its schema, or what the fake cluster says where it plays the API; the lies are those
of `tests/support/fake_cluster/hostile.py`. CreateTopics and DescribeCluster have messages and no caller in
the client: no broker is ever asked, so theirs are spoilt and read, and no producer meets them.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

from client_core.errors import InvalidReceiveError, KafkaError, SchemaError
from client_core.network.network_receive import NetworkReceive
from client_core.protocol.api_keys import API_KEYS, ApiKey
from client_core.protocol.header import decode_response_header, encode_response_header
from tests.fuzz.wire_values import message
from tests.protocol.messages import generated_messages
from tests.support.fake_cluster.hostile import HostileAnswer
from tests.support.hostile_runs import survive_over_sockets, without_log
from tests.support.hostile_simulation import survive_in_process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.hostile_load import Survived

_MAX_RECEIVE_BYTES: Final = 1_000_000
_RESPONSES: Final[dict[int, Any]] = {
    generated.api_key: generated.type
    for generated in generated_messages()
    if generated.name.endswith("Response")
}
#: Without SASL as often as with all of its mechanisms together.
_MECHANISMS: Final = (None, "PLAIN", None, "SCRAM-SHA-256", None, "SCRAM-SHA-512")


def answers(seeds: Iterable[int]) -> Counter[str]:
    """How many answers of each API were read or refused. Any other error comes through."""
    tried: Counter[str] = Counter()
    for seed in seeds:
        for api in API_KEYS:
            for version in range(api.min_version, api.max_version + 1):
                _answer(api, version, Random(f"{seed}/{api}/{version}"))
                tried[api.name] += 1
    return tried


def _answer(api: ApiKey, version: int, random: Random) -> None:
    honest = message(_RESPONSES[api.id], version, random)
    liar = HostileAnswer(random, api, lasting=True, in_values=random.random() < 0.5)
    body = liar.encode(honest, version)
    payload = encode_response_header(api, version, 7) + body
    stream = NetworkReceive(_MAX_RECEIVE_BYTES)
    try:
        for piece in liar.shape(len(payload).to_bytes(4) + payload).pieces:
            stream.feed(piece)
            while (frame := stream.take()) is not None:
                _read(api, version, frame)
    except InvalidReceiveError:
        return


def _read(api: ApiKey, version: int, frame: bytes) -> None:
    try:
        _, offset = decode_response_header(frame, api, version)
        read = _RESPONSES[api.id].decode(frame, version, offset)
    except SchemaError:
        return
    try:
        read.encode(version)  # what was read is a message, not something like it
    except KafkaError as error:
        raise AssertionError(f"{api} v{version}: read, and can't be written: {read!r}") from error


def survived(seeds: Iterable[int]) -> Counter[str]:
    """Answers that were spoilt, by API; a run that was not survived comes through with its seed."""
    return _total(survive_in_process(seed, idempotent=bool(seed % 2)) for seed in seeds)


def survived_over_sockets(seeds: Iterable[int]) -> Counter[str]:
    """The same with threads and sockets, every other run with SASL."""
    return _total(
        survive_over_sockets(seed, idempotent=bool(seed % 2), mechanism=_MECHANISMS[seed % len(_MECHANISMS)])
        for seed in seeds
    )


def _total(runs: Iterable[Survived]) -> Counter[str]:
    spoilt: Counter[str] = Counter()
    with without_log():
        for run in runs:
            spoilt.update({api.name: count for api, count in run.spoilt_answers.items()})
    return spoilt
