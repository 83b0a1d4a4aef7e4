"""Shared by the tests of the Dapr dialect: an app with no other dialect, and the reading of its answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    import httpx

    from client_core import ProducerRecord


def web(**settings: Any) -> HttpApp:
    """An app that knows the topic orders."""
    app = HttpApp(**{"dialects": "dapr", "console": False, **settings})
    app.producer.set_topics({"orders": 3})
    return app


def taken(app: HttpApp, answer: httpx.Response) -> list[ProducerRecord]:
    """The records of a request that was accepted, the only ones since this was last asked."""
    assert (answer.status_code, answer.content) == (204, b""), said_of(answer)
    (records,) = app.producer.submitted
    app.producer.submitted.clear()
    return records


def envelope(record: ProducerRecord) -> dict[str, Any]:
    """The CloudEvent in a record, which says that it is one."""
    assert dict(record.headers)["content-type"] == b"application/cloudevents+json; charset=UTF-8"
    assert record.value is not None
    event: dict[str, Any] = json.loads(record.value)
    return event


def refusal(app: HttpApp, answer: httpx.Response, status: int) -> str:
    """The errorCode of a refusal, of which nothing was written."""
    assert answer.status_code == status, said_of(answer)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["message"]
    assert app.producer.submitted == [], said_of(answer)
    code: str = answer.json()["errorCode"]
    return code


def said_of(answer: httpx.Response) -> str:
    """What was asked, and what was answered."""
    asked = answer.request
    return f"{asked.method} {asked.url} {asked.content[:200]!r}: {answer.status_code} {answer.text}"


def details(answer: httpx.Response) -> dict[str, Any]:
    """The one detail of an error, google.rpc.ErrorInfo."""
    (detail,) = answer.json()["details"]
    assert detail["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert detail["domain"] == "dapr.io"
    return dict(detail)
