"""Clients generated from the OpenAPI document, by four generators: they are complete, and they work.

Each is generated without a warning and checked as strictly as its language can be, with a program of typed
calls that then runs. The Python client also gets every answer of every operation, from sidecars over the
embedded cluster (provocations.py), and must have parsed it as the document says.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from service.process.embedded import EmbeddedCluster
from tests.clients.generators import check_go, check_java, check_typescript, generate_python
from tests.clients.provocations import TOPIC, UNPROVOKED, Provoked, calls
from tests.service.native.test_openapi_examples import in_3_1
from tests.support.http_app import HttpApp
from tests.support.sidecar import Sidecar
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCUMENT: dict[str, Any] = HttpApp().app.api.openapi()
OPERATIONS: dict[str, dict[str, Any]] = {
    operation["operationId"]: operation
    for operations in DOCUMENT["paths"].values()
    for operation in operations.values()
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> TokensFile:
    return TokensFile(tmp_path_factory.mktemp("tokens"), all={"read": ["*"], "produce": ["*"]})


@pytest.fixture(scope="module")
def sidecar(tokens: TokensFile, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    with (
        EmbeddedCluster(topics=(TOPIC,)) as cluster,
        Sidecar(
            tmp_path_factory.mktemp("sidecar"),
            bootstrap_servers=cluster.bootstrap_servers,
            flags=("--tokens-file", tokens.setting, "--log-level", "warning"),
            headers=tokens.of("all"),
        ) as running,
    ):
        yield running


@pytest.mark.tools
def test_the_python_client_produces_looks_up_and_watches(
    sidecar: Sidecar, tokens: TokensFile, tmp_path: Path
) -> None:
    """By openapi-python-client."""
    generate_python(DOCUMENT, tmp_path).use(sidecar.api_url, tokens.token("all"))


@pytest.mark.tools
def test_the_python_client_is_typed_throughout_and_reads_every_answer_of_every_operation(
    tmp_path: Path,
) -> None:
    client = generate_python(DOCUMENT, tmp_path)
    client.check()
    with Provoked(tmp_path) as provoked:
        asked = calls(DOCUMENT, provoked.cluster_id())
        sent = [
            {
                "operation": call.operation,
                "base": f"{provoked.url}/{call.base}",
                "arguments": call.arguments | _body(call.operation, call.status),
            }
            for call in asked
        ]
        answers = client.call(sent, provoked.token)
    wrong = [
        (call, answer)
        for call, answer in zip(asked, answers, strict=True)
        if answer["status"] != call.status or _misfit(call.operation, answer)
    ]
    assert wrong == [], "\n".join(str(each) for each in wrong)
    statuses = Counter(int(status) for one in OPERATIONS.values() for status in one["responses"])
    assert Counter(call.status for call in asked) == statuses - Counter(s for _, s in UNPROVOKED)


@pytest.mark.tools
def test_the_typescript_client_produces_looks_up_and_watches(
    sidecar: Sidecar, tokens: TokensFile, tmp_path: Path
) -> None:
    """By openapi-typescript, with openapi-fetch; `tsc --strict`."""
    check_typescript(DOCUMENT, tmp_path, sidecar.api_url, tokens.token("all"))


@pytest.mark.tools
def test_the_java_client_produces_looks_up_and_watches(
    sidecar: Sidecar, tokens: TokensFile, tmp_path: Path
) -> None:
    """By OpenAPI Generator; javac with warnings as errors."""
    check_java(DOCUMENT, tmp_path, sidecar.api_url, tokens.token("all"))


@pytest.mark.tools
def test_the_go_client_produces_looks_up_and_watches(
    sidecar: Sidecar, tokens: TokensFile, tmp_path: Path
) -> None:
    """By OpenAPI Generator; `go vet`."""
    check_go(DOCUMENT, tmp_path, sidecar.api_url, tokens.token("all"))


def _body(name: str, status: int) -> dict[str, Any]:
    """The example of the operation's body."""
    if "requestBody" not in OPERATIONS[name]:
        return {}
    content = next(iter(OPERATIONS[name]["requestBody"]["content"].values()))
    schema = content["schema"]
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    example = schema["example"]
    if status == 207 and name == "produceRecords":
        example = {"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 1}]}
    elif status == 207 and name == "publishCloudEvents":  # enough for both partitions
        example = [{**example[0], "id": key, "partitionkey": key} for key in "abcdefgh"]
    return {"body": example}


def _misfit(name: str, answer: dict[str, Any]) -> list[str]:
    """Why what the client parsed is not what the document says; empty if it is."""
    content = OPERATIONS[name]["responses"][str(answer["status"])].get("content", {})
    if not content:
        return []
    if answer["type"] == "NoneType":
        return ["not parsed"]
    schema = in_3_1({**next(iter(content.values()))["schema"], "components": DOCUMENT["components"]})
    return [str(error) for error in jsonschema_rs.validator_for(schema).iter_errors(answer["body"])]
