"""Clients generated from the OpenAPI document, by four generators: they are complete, and they work.

Each is generated without a warning and checked as strictly as its language can be, with a program of typed
calls that then runs. Each also gets every answer of every operation, from sidecars over the embedded cluster
(provocations.py), and must have parsed it as the document says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from service.process.embedded import EmbeddedCluster
from tests.clients.generators import Client, generate_go, generate_java, generate_python, generate_typescript
from tests.clients.provocations import TOPIC, Provoked, calls
from tests.service.native.test_openapi_examples import document, in_3_1
from tests.support.sidecar import Sidecar
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


@pytest.fixture(scope="module")
def provoked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provoked]:
    with Provoked(tmp_path_factory.mktemp("provoked")) as running:
        yield running


@pytest.mark.tools
def test_the_python_client_produces_looks_up_and_watches(
    sidecar: Sidecar, tokens: TokensFile, tmp_path: Path
) -> None:
    """By openapi-python-client."""
    generate_python(document(), tmp_path).use(sidecar.api_url, tokens.token("all"))


@pytest.mark.tools
def test_the_python_client_is_typed_throughout_and_reads_every_answer_of_every_operation(
    provoked: Provoked, tmp_path: Path
) -> None:
    client = generate_python(document(), tmp_path)
    client.check()
    assert _wrong(client, provoked) == ""


@pytest.mark.tools
def test_the_typescript_client_reads_every_answer_of_every_operation(
    sidecar: Sidecar, tokens: TokensFile, provoked: Provoked, tmp_path: Path
) -> None:
    """By openapi-typescript, with openapi-fetch; `tsc --strict`."""
    client = generate_typescript(document(), tmp_path)
    client.use(sidecar.api_url, tokens.token("all"))
    assert _wrong(client, provoked) == ""


@pytest.mark.tools
def test_the_java_client_reads_every_answer_of_every_operation(
    sidecar: Sidecar, tokens: TokensFile, provoked: Provoked, tmp_path: Path
) -> None:
    """By OpenAPI Generator; javac with warnings as errors. Its library reads every answer as JSON."""
    client = generate_java(document(), tmp_path)
    client.use(sidecar.api_url, tokens.token("all"))
    assert _wrong(client, provoked, but="text") == ""


@pytest.mark.tools
def test_the_go_client_reads_every_answer_of_every_operation(
    sidecar: Sidecar, tokens: TokensFile, provoked: Provoked, tmp_path: Path
) -> None:
    """By OpenAPI Generator; `go vet`."""
    client = generate_go(document(), tmp_path)
    client.use(sidecar.api_url, tokens.token("all"))
    assert _wrong(client, provoked) == ""


def _wrong(client: Client, provoked: Provoked, but: str = "") -> str:
    """A line for each call whose answer has another status, or was not parsed as the document says.

    `but`: of the answers, those that are not asked for.
    """
    asked = calls(document(), provoked.cluster_id())
    written = [call.written_out(document(), provoked.url) for call in asked]
    sent = [(call, one) for call, one in zip(asked, written, strict=True) if one["answer"] != but]
    answers = client.call([one for _, one in sent], provoked.token)
    return "\n".join(
        f"{call} {answer}"
        for (call, _), answer in zip(sent, answers, strict=True)
        if answer["status"] != call.status or _misfit(call.operation, answer)
    )


def _misfit(name: str, answer: dict[str, Any]) -> list[str]:
    """Why what the client parsed is not what the document says; empty if it is."""
    (operation,) = (
        operation
        for operations in document()["paths"].values()
        for operation in operations.values()
        if operation["operationId"] == name
    )
    content = operation["responses"][str(answer["status"])].get("content", {})
    if not content:
        return []
    if answer["type"] is None:
        return ["not parsed"]
    schema = in_3_1({**next(iter(content.values()))["schema"], "components": document()["components"]})
    return [str(error) for error in jsonschema_rs.validator_for(schema).iter_errors(answer["body"])]
