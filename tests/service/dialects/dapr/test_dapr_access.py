"""Tokens on Dapr's paths: its SDKs bring them in a header of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.dialects.dapr.dapr_app import envelope, only_records, refusal, web
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.http_app import HttpApp

PUBLISH = "/v1.0/publish/pubsub/orders"
BULK = "/v1.0-alpha1/publish/bulk/pubsub/orders"


@pytest.fixture
def tokens(tmp_path: Path) -> TokensFile:
    return TokensFile(tmp_path, shop={"produce": ["orders"]}, reader={"read": ["*"]})


@pytest.fixture
def app(tokens: TokensFile) -> HttpApp:
    return web(tokens_file=tokens.setting)


def dapr(tokens: TokensFile, name: str) -> dict[str, str]:
    return {"dapr-api-token": tokens.token(name)}


def test_the_token_is_taken_from_daprs_header_or_from_the_usual_one(app: HttpApp, tokens: TokensFile) -> None:
    for number, headers in enumerate([dapr(tokens, "shop"), tokens.of("shop")], start=1):
        assert app.post(PUBLISH, headers=headers, content=b"1").status_code == 204
        assert app.get("/v1.0/metadata", headers=headers).status_code == 200
        assert len(app.producer.submitted) == number


def test_what_the_token_may_not_is_403_in_daprs_words(app: HttpApp, tokens: TokensFile) -> None:
    for path in (PUBLISH, BULK):
        answer = app.post(path, headers=dapr(tokens, "reader"), content=b"[]")
        assert refusal(app, answer, 403) == "ERR_PUBSUB_FORBIDDEN"
    answer = app.post("/v1.0/publish/pubsub/payments", headers=dapr(tokens, "shop"), content=b"1")
    assert refusal(app, answer, 403) == "ERR_PUBSUB_FORBIDDEN"


def test_without_a_token_or_with_a_wrong_one_it_is_401(app: HttpApp, tokens: TokensFile) -> None:
    for headers in ({}, {"dapr-api-token": "wrong"}, {"dapr-api-token": ""}):
        for method, path in [("POST", PUBLISH), ("POST", BULK), ("GET", "/v1.0/metadata")]:
            answer = app.ask(method, path, headers=headers)
            assert refusal(app, answer, 401) == "ERR_UNAUTHENTICATED"
            assert answer.headers["www-authenticate"].startswith("Bearer ")


def test_two_tokens_are_one_too_many(app: HttpApp, tokens: TokensFile) -> None:
    both = [*dapr(tokens, "shop").items(), *tokens.of("shop").items()]
    refusal(app, app.post(PUBLISH, headers=both, content=b"1"), 400)
    twice = [*dapr(tokens, "shop").items()] * 2
    refusal(app, app.post(PUBLISH, headers=twice, content=b"1"), 400)


def test_daprs_header_opens_nothing_but_daprs_paths(tokens: TokensFile) -> None:
    app = web(tokens_file=tokens.setting, dialects="dapr,cloudevents")
    for path in ("/v1/topics/orders/records", "/cloudevents/orders"):
        assert app.post(path, headers=dapr(tokens, "shop"), content=b"1").status_code == 401
    assert app.get("/v1/cluster", headers=dapr(tokens, "reader")).status_code == 401


def test_health_is_open_as_it_is_in_dapr(app: HttpApp) -> None:
    assert app.get("/v1.0/healthz").status_code == 204
    assert app.get("/v1.0/healthz/outbound").status_code == 204
    assert app.post("/v1.0/healthz").status_code == 401


def test_the_token_stands_in_no_record(app: HttpApp, tokens: TokensFile) -> None:
    app.post(PUBLISH, headers=dapr(tokens, "shop"), content=b"1")
    (record,) = only_records(app)
    assert tokens.token("shop") not in str(record)
    assert envelope(record)["data"] == "1"
