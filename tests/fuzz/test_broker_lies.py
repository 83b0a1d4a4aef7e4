"""Brokers lie in every type of answer; `make fuzz` lets them do it for longer."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core.protocol.api_keys import API_KEYS, ApiKey
from client_core.protocol.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from client_core.testing.api_versions import KAFKA_4_3, drawn_versions
from tests.fuzz.broker_lies import answers, survived, survived_over_sockets
from tests.fuzz.hostile_sidecar import survive
from tests.support.fake_cluster.hostile import Hostility, addresses_of

if TYPE_CHECKING:
    from pathlib import Path


def test_every_type_of_answer_is_spoilt_at_every_version() -> None:
    tried = answers(range(10))
    assert tried == {api.name: 10 * (api.max_version - api.min_version + 1) for api in API_KEYS}


def test_producers_survive_lies_in_whatever_they_ask() -> None:
    spoilt = survived(range(8)) + survived_over_sockets(range(4))
    assert set(spoilt) >= {"ApiVersions", "Metadata", "Produce", "DescribeConfigs", "SaslHandshake"}


@pytest.mark.parametrize("seed", [3])
def test_a_sidecar_lives_among_liars_and_works_again_behind_them(seed: int, tmp_path: Path) -> None:
    endured = survive(seed, 2.0, tmp_path)
    assert endured.spoilt.total() > 10
    assert endured.statuses[200]


def test_every_version_is_negotiated_with_one_broker_or_another() -> None:
    drawn = [drawn_versions(Random(seed)) for seed in range(500)]
    for api in (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID, ApiKey.API_VERSIONS):
        highest = {versions[api.id][1] for versions in drawn}
        least = 4 if api is ApiKey.METADATA else max(api.min_version, 1)
        assert highest == set(range(least, KAFKA_4_3[api.id][1] + 1))


def test_hostile_brokers_name_no_address_but_those_that_they_may() -> None:
    known = frozenset({("127.0.0.1", 9_092), ("127.0.0.1", 9_093)})
    honest = MetadataResponse(
        brokers=tuple(MetadataResponseBroker(n, host, port) for n, (host, port) in enumerate(sorted(known)))
    )

    def named(liar: Hostility) -> set[tuple[str, int]]:
        found: set[tuple[str, int]] = set()
        for _ in range(500):
            answer = liar.next_answer(1, ApiKey.METADATA)
            found |= addresses_of(MetadataResponse.decode(answer.encode(honest, 12), 12))
        return found

    assert named(Hostility(1, rate=1.0, addresses=known)) == known
    assert named(Hostility(1, rate=1.0)) > known
