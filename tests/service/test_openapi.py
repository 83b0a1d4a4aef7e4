"""The OpenAPI document is true: each operation is asked what the document allows, and what it does not.

A real sidecar over a fake cluster, asked by schemathesis. No status that the document leaves out (5xx least
of all), no media type, no body outside its schema; what the document forbids is refused. That all it allows
is taken can't be asked for: a document can't say "exactly one of these", or base64, or which partitions
there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from tests.support.fake_cluster import FakeCluster
from tests.support.http_app import HttpApp
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemathesis import Case
    from schemathesis.core.transport import Response

#: Waits as short as they can be: hardly any topic that is made up exists.
_WAIT_MS: Final = 50
_FLAGS: Final = (
    *("--lookup-wait-ms", str(_WAIT_MS), "--unknown-topic-wait-ms", str(_WAIT_MS)),
    *("--unknown-topics-per-second", "100000", "--log-level", "warning"),
)
#: The topic that the document's examples speak of.
_TOPIC: Final = "orders"

#: How many requests an operation gets of what hypothesis makes up, besides the examples and the corners.
_EXAMPLES: Final = 25
_PATIENCE_S: Final = 10


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    with FakeCluster(3) as cluster:
        cluster.create_topic(_TOPIC, partitions=3)
        folder: Path = tmp_path_factory.mktemp("sidecar")
        kafka = {"max.block.ms": str(_WAIT_MS), "client.id": "openapi"}
        with Sidecar(
            folder, bootstrap_servers=cluster.bootstrap_servers, kafka=kafka, flags=_FLAGS
        ) as running:
            yield running


@pytest.fixture(scope="module")
def document(sidecar: Sidecar) -> Any:
    return schemathesis.openapi.from_url(f"{sidecar.api_url}/openapi.json")


@pytest.fixture(scope="module")
def there(sidecar: Sidecar) -> dict[str, str]:
    """Path parameters of what there is: of what hypothesis makes up, nothing is."""
    return {"topic": _TOPIC, "cluster_id": sidecar.api.get("/v1/cluster").json()["cluster_id"]}


def operations() -> Iterator[Any]:
    """Every operation of the document, all dialects among them, with what it allows and what it forbids."""
    for path, methods in sorted(HttpApp().app.api.openapi()["paths"].items()):
        for method, operation in sorted(methods.items()):
            name = f"{method.upper()} {path}"
            yield pytest.param(path, method, GenerationMode.POSITIVE, id=f"{name} allowed")
            if operation.get("parameters") or "requestBody" in operation:
                yield pytest.param(path, method, GenerationMode.NEGATIVE, id=f"{name} forbidden")


@pytest.mark.parametrize(("path", "method", "mode"), list(operations()))
def test_an_operation_answers_as_the_document_says(
    path: str, method: str, mode: GenerationMode, document: Any, there: dict[str, str]
) -> None:
    # A 503 at the end of a wait is no fault: that it is in the document is checked.
    not_asked: Any = CHECKS.get_by_names(["positive_data_acceptance", "not_a_server_error"])

    @hypothesis.settings(max_examples=_EXAMPLES, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=document[path][method].as_strategy(generation_mode=mode))
    def ask(case: Case[Any]) -> None:
        _hurry(case)
        if mode is GenerationMode.POSITIVE:
            case.path_parameters.update({n: there[n] for n in case.path_parameters if n in there})
        answer = case.call_and_validate(timeout=_PATIENCE_S, excluded_checks=not_asked)
        assert answer.status_code != 500 or _is_daprs(answer), answer.text

    ask()


def _is_daprs(answer: Response) -> bool:
    """Whether a 500 is Dapr's own, for what was not delivered, and no fault that nobody foresaw."""
    told = answer.json()
    return isinstance(told, dict) and told.get("errorCode") not in (None, "ERR_INTERNAL")


def _hurry(case: Case[Any]) -> None:
    """Has nobody wait for an hour, and what streams answer whole."""
    for name in ("max_block_ms", "timeout_ms"):
        if isinstance(case.query.get(name), int):
            case.query[name] = min(case.query[name], _WAIT_MS)
    if case.path == "/v1/watch":
        case.headers["Accept"] = "application/json"
