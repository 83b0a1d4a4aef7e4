"""The cluster that bootstrap.servers make before a broker has answered, as Java makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.client.bootstrap_addresses import parse_and_validate_addresses
from client_core.cluster import Cluster

if TYPE_CHECKING:
    from tests.golden.conftest import Cases


@pytest.mark.golden("traces/bootstrap.json")
def test_bootstrap_addresses_become_javas_nodes(cases: Cases) -> None:
    for case in cases:
        cluster = Cluster.bootstrap(parse_and_validate_addresses(case["addresses"]))
        assert sorted([node.id, node.host, node.port] for node in cluster.nodes) == sorted(case["nodes"])
        assert cluster.is_bootstrap_configured is case["is_bootstrap_configured"]
        assert cluster.cluster_id == case["cluster_id"]
        assert len(cluster.topics) == case["topics"]
