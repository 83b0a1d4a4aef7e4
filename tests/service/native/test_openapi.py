"""The OpenAPI document is true: each operation gets requests that it allows, and some that it forbids.

A real sidecar over a fake cluster is called by schemathesis. The rules are in `tests/fuzz/openapi_cases.py`;
`make fuzz` makes many more calls by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import schemathesis

from client_core.testing import FakeCluster
from tests.fuzz.openapi_cases import (
    FLAGS,
    LIMITS,
    THERE,
    TOPIC,
    WAIT_MS,
    Operation,
    ask,
    follow_links,
    operations,
)
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: How many requests an operation gets of what hypothesis makes up, besides the examples and the corners.
_EXAMPLES: Final = 25
#: How many chains of requests along the links.
_CHAINS: Final = 15


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    with FakeCluster(3) as cluster:
        cluster.create_topic(TOPIC, partitions=3, replication_factor=3)
        folder: Path = tmp_path_factory.mktemp("sidecar")
        kafka = {"max.block.ms": str(WAIT_MS), "client.id": "openapi"}
        with Sidecar(
            folder,
            bootstrap_servers=cluster.bootstrap_servers,
            kafka=kafka,
            flags=(*FLAGS, "--spool-folder", str(folder / "spool")),
            limits=LIMITS,
        ) as running:
            yield running


@pytest.fixture(scope="module")
def document(sidecar: Sidecar) -> Any:
    return schemathesis.openapi.from_url(f"{sidecar.api_url}/openapi.json")


@pytest.fixture(scope="module")
def there(sidecar: Sidecar) -> dict[str, str]:
    """Parameters of existing resources: the names that hypothesis makes up don't exist."""
    return {**THERE, "cluster_id": sidecar.api.get("/v1/cluster").json()["cluster_id"]}


@pytest.mark.parametrize("operation", list(operations()), ids=str)
def test_an_operation_answers_as_the_document_says(
    operation: Operation, document: Any, there: dict[str, str]
) -> None:
    assert ask(document, operation, there, examples=_EXAMPLES) > 0


@pytest.mark.parametrize("seed", range(12))
def test_links_lead_from_answer_to_answer_as_the_document_says(
    seed: int, document: Any, there: dict[str, str]
) -> None:
    asked = follow_links(document, there, chains=_CHAINS, seed=seed)
    assert len(asked) > 1
