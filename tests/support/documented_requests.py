"""The requests that the OpenAPI document describes, with its own examples: of each API, dialects included.

A new operation, or a new dialect, is among them without a change here. For tests of what all answers have in
common.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from service.base.settings import DIALECTS
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Query parameters without which an operation is refused, though each of them is optional.
_QUERIES: Final = {"lookUpLeader": "?partition=0"}


@dataclass(frozen=True, slots=True)
class DocumentedRequest:
    """One request. `path` has parameters in braces; the topic of the `body` is `orders`."""

    operation_id: str
    method: str
    path: str
    statuses: frozenset[str]
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None

    def target(self, topic: str, cluster_id: str) -> str:
        """The path and query for this topic, partition 0 and broker 1."""
        values = {"topic": topic, "cluster_id": cluster_id, "broker_id": "1", "pubsub": "pubsub"}
        values |= {"partition": "0", "partition_id": "0"}
        return self.path.format(**values) + _QUERIES.get(self.operation_id, "")

    def content(self, topic: str) -> str | None:
        """The body for this topic; None if there is none."""
        return None if self.body is None else self.body.replace('"orders"', json.dumps(topic))


def documented_requests() -> Iterator[DocumentedRequest]:
    """One for each operation of the document of a sidecar with all dialects."""
    document = HttpApp(dialects=DIALECTS).app.api.openapi()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            media_type, body = _body(document, operation)
            headers = {
                parameter["name"]: parameter["example"]
                for parameter in operation.get("parameters", ())
                if parameter["in"] == "header" and parameter.get("required")
            }
            if media_type is not None:
                headers["content-type"] = media_type
            yield DocumentedRequest(
                operation["operationId"],
                method.upper(),
                path,
                frozenset(operation["responses"]),
                headers,
                body,
            )


def _body(document: Mapping[str, Any], operation: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The first media type of a body, and its example."""
    contents = operation.get("requestBody", {}).get("content", {})
    for media_type, content in contents.items():
        schema = content["schema"]
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        example = schema["example"]
        return media_type, example if "octet-stream" in media_type else json.dumps(example)
    return None, None
