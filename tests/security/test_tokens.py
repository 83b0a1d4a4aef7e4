"""Attempts of a caller without a token, or with one for other topics."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import pytest

from client_core import BatchCount, Cause, Errors, Phase, TopicWait, UnknownTopicOrPartitionError
from client_core import events as e
from client_core.producer.accumulator.backlog import Backlog
from service.admission.tokens_file import parse_tokens
from service.base.watched_file import FileFaultError
from tests.support.file_looks import FileLooks
from tests.support.http_app import HttpApp
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

RECORDS: Final = b'{"records":[{"value":1}]}'
JSON: Final = {"content-type": "application/json"}
PRODUCE: Final = "/v1/topics/orders/records"
KEY: Final = "9c0d6e9e-6d6a-4b0e-8b1a-0f7c2b9a3a11"


@pytest.fixture
def tokens(tmp_path: Path) -> TokensFile:
    return TokensFile(
        tmp_path,
        shop={"read": ["orders"], "produce": ["orders"]},
        other={"read": ["orders"], "produce": ["orders"]},
        stranger={"read": ["elsewhere"], "produce": ["elsewhere"]},
    )


@pytest.fixture
def web(tokens: TokensFile) -> HttpApp:
    app = HttpApp(tokens_file=tokens.setting)
    app.producer.set_topics({"orders": 3, "elsewhere": 1})
    app.producer.on_brokers = {"orders": 3, "elsewhere": 1}
    app.producer.calls.clear()
    return app


# -- no token ------------------------------------------------------------------------------------------------


def test_text_that_is_no_token_opens_nothing(web: HttpApp) -> None:
    for said in (
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer \t  ",
        b"Bearer null",
        b"Bearer undefined",
        b"Basic c2hvcDpzaG9w",
        b"Bearer\tshop-0123456789abcdef",
        b"Bearer, shop-0123456789abcdef",
        b"Bearer shop-0123456789abcdef, Bearer x",
        "Bearer shop-0123456789abcde\uff46".encode(),
        b"Bearer shop-0123456789abcdef\x00",
        b"Bearer " + b"x" * 60_000,
    ):
        headers = {b"authorization": said, b"content-type": b"application/json"}
        for path in (
            "/v1/topics/orders",
            "/v1/topics/%6Frders",
            "/v1/status",
            "/v1/watch",
            "/topics",
            "/nothing",
        ):
            assert web.get(path, headers=headers).status_code == 401, (said[:40], path)
        assert web.post(PRODUCE, content=RECORDS, headers=headers).status_code == 401, said[:40]
        assert web.producer.submitted == [], said[:40]


def test_a_token_counts_in_no_other_place(web: HttpApp, tokens: TokensFile) -> None:
    for name in ("token", "access_token", "authorization", "api_key", "bearer"):
        token = tokens.token("shop")
        assert web.get(f"/v1/topics/orders?{name}={token}").status_code == 401, name
        for header in (name.replace("_", "-") if name != "authorization" else "x-authorization", "cookie"):
            assert web.get("/v1/topics/orders", headers={header: f"Bearer {token}"}).status_code == 401, name


def test_the_hash_of_an_empty_variable_is_refused_and_opens_nothing() -> None:
    for nothing in (b"", b"\n"):
        entry = f'[[token]]\nname = "shop"\nsha256 = "{hashlib.sha256(nothing).hexdigest()}"\nread = ["*"]\n'
        with pytest.raises(FileFaultError, match="is the hash of an empty token"):
            parse_tokens("tokens.toml", entry.encode())


# -- a token for other topics --------------------------------------------------------------------------------


def replayed(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text


def test_an_idempotency_key_replays_no_other_callers_answer(web: HttpApp, tokens: TokensFile) -> None:
    headers = {**JSON, "idempotency-key": KEY}
    first = web.post(PRODUCE, content=RECORDS, headers={**headers, **tokens.of("shop")})
    assert first.status_code == 200
    again = web.post(PRODUCE, content=RECORDS, headers={**headers, **tokens.of("shop")})
    assert replayed(again) == replayed(first)
    assert len(web.producer.submitted) == 1
    mine = web.post(PRODUCE, content=RECORDS, headers={**headers, **tokens.of("other")})
    assert mine.status_code == 200
    assert len(web.producer.submitted) == 2  # its own request was sent: nothing of the first came back


@pytest.mark.parametrize("body", [RECORDS, b'{"records":[{"value":2}]}', b"nonsense"])
def test_an_idempotency_key_reveals_nothing_to_a_caller_without_the_right(
    web: HttpApp, tokens: TokensFile, body: bytes
) -> None:
    headers = {**JSON, "idempotency-key": KEY}
    unused = web.post(PRODUCE, content=body, headers={**headers, **tokens.of("stranger")})
    web.post(PRODUCE, content=RECORDS, headers={**headers, **tokens.of("shop")})
    used = web.post(PRODUCE, content=body, headers={**headers, **tokens.of("stranger")})
    assert replayed(unused) == replayed(used)
    assert used.status_code == 403


def test_a_right_that_was_taken_away_takes_its_kept_answers_along(web: HttpApp, tokens: TokensFile) -> None:
    headers = {**JSON, "idempotency-key": KEY, **tokens.of("shop")}
    access = web.app.access
    assert access is not None
    looks = FileLooks(access)
    assert web.post(PRODUCE, content=RECORDS, headers=headers).status_code == 200
    tokens.write(shop={"read": ["orders"], "produce": ["elsewhere"]})
    looks.look()
    assert web.post(PRODUCE, content=RECORDS, headers=headers).status_code == 403


def test_no_spelling_of_a_name_goes_round_its_rule(web: HttpApp, tokens: TokensFile) -> None:
    for spelling in (
        "orders",
        "%6Frders",
        "%6f%72%64%65%72%73",
        "ORDERS",
        "Orders",
        "orders%20",
        "orders%00",
        "orders.",
        "%EF%BD%8Frders",
    ):
        sent: dict[str, Any] = {"headers": {**JSON, **tokens.of("stranger")}}
        for answer in (
            web.get(f"/v1/topics/{spelling}", headers=tokens.of("stranger")),
            web.get(f"/v1/topics/{spelling}/leader?partition=0", headers=tokens.of("stranger")),
            web.get(f"/topics/{spelling}", headers=tokens.of("stranger")),
            web.get(f"/v3/clusters/cluster/topics/{spelling}", headers=tokens.of("stranger")),
            web.post(f"/v1/topics/{spelling}/records", content=RECORDS, **sent),
            web.post(f"/topics/{spelling}", content=RECORDS, **sent),
            web.post(f"/cloudevents/{spelling}", content=RECORDS, **sent),
            web.post(f"/v1.0/publish/pubsub/{spelling}", content=RECORDS, **sent),
        ):
            assert answer.status_code >= 400, spelling
            assert "partitions" not in answer.text, spelling
            assert "leader_epoch" not in answer.text, spelling
        assert web.producer.submitted == [], spelling
        assert web.producer.calls == [], spelling  # and no broker was asked


# -- memory that callers share -------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path) -> tuple[HttpApp, TokensFile]:
    """A caller `whole`, who may do all, and `part`, who may use `orders` only."""
    callers = TokensFile(
        tmp_path,
        whole={"read": ["*"], "produce": ["*"]},
        part={"read": ["orders"], "produce": ["orders"]},
        other={"read": ["orders"], "produce": ["orders"]},
    )
    app = HttpApp(tokens_file=callers.setting, dapr_labels_max_bytes=1_000)
    app.producer.set_topics({"orders": 3, "payroll": 3})
    app.producer.on_brokers = {"orders": 3, "payroll": 3, "payroll-archive": 3}
    return app, callers


def label(app: HttpApp, headers: dict[str, str], name: str, value: bytes) -> int:
    return app.ask("PUT", f"/v1.0/metadata/{name}", content=value, headers=headers).status_code


def labels_of(app: HttpApp, headers: dict[str, str]) -> dict[str, str]:
    extended = app.get("/v1.0/metadata", headers=headers).json()["extended"]
    return {name: value for name, value in extended.items() if name != "daprRuntimeVersion"}


def test_labels_of_dapr_are_each_callers_own(shared: tuple[HttpApp, TokensFile]) -> None:
    app, callers = shared
    for name in ("whole", "part"):
        assert label(app, callers.of(name), "color", name.encode()) == 204
    assert label(app, callers.of("whole"), "secret", b"of whole") == 204
    assert labels_of(app, callers.of("whole")) == {"color": "whole", "secret": "of whole"}
    assert labels_of(app, callers.of("part")) == {"color": "part"}
    assert labels_of(app, callers.of("other")) == {}
    # By Dapr's own header it is the same caller.
    assert labels_of(app, {"dapr-api-token": callers.token("part")}) == {"color": "part"}


def test_labels_of_one_caller_take_no_others_room(shared: tuple[HttpApp, TokensFile]) -> None:
    app, callers = shared
    statuses = [label(app, callers.of("part"), f"l{number}", b"x" * 50) for number in range(30)]
    assert set(statuses) == {204, 413}
    assert label(app, callers.of("other"), "mine", b"x" * 50) == 204
    assert label(app, callers.of("part"), "l0", b"y" * 50) == 204


def test_a_list_of_topics_that_another_caller_had_fetched_is_filtered_for_each(
    shared: tuple[HttpApp, TokensFile],
) -> None:
    app, callers = shared
    for path in ("/v1/topics", "/topics", "/v3/clusters/cluster/topics", "/v1/brokers/1"):
        reported = [app.get(path, headers=callers.of(name)) for name in ("whole", "part", "whole", "part")]
        assert ["payroll" in answer.text for answer in reported] == [True, False, True, False]
        assert all("orders" in answer.text for answer in reported)
        assert reported[0].headers["etag"] != reported[1].headers["etag"]
    assert len([call for call, _ in app.producer.calls if call == "listing"]) == 1


def test_an_answer_prepared_for_another_caller_is_not_sent_without_the_right_to_read_it(
    shared: tuple[HttpApp, TokensFile],
) -> None:
    app, callers = shared
    for path in ("/v1/topics/payroll", "/v1/topics/payroll/leader?partition=0", "/topics/payroll"):
        assert app.get(path, headers=callers.of("whole")).status_code == 200
        etag = app.get(path, headers=callers.of("whole")).headers["etag"]
        for headers in ({}, {"if-none-match": etag}, {"if-none-match": "*"}):
            assert app.get(path, headers={**callers.of("part"), **headers}).status_code == 403


def test_a_missing_topic_that_is_remembered_is_not_revealed_to_callers_without_the_right(
    shared: tuple[HttpApp, TokensFile],
) -> None:
    app, callers = shared
    unknown = app.app.sidecar.unknown
    before = app.get("/v1/topics/payroll-gone", headers=callers.of("part"))
    unknown.remember("payroll-gone", UnknownTopicOrPartitionError("gone"), app.producer.clock.now_ms())
    assert app.get("/v1/topics/payroll-gone", headers=callers.of("whole")).status_code == 404
    after = app.get("/v1/topics/payroll-gone", headers=callers.of("part"))
    assert (before.status_code, before.text) == (after.status_code, after.text)
    assert after.status_code == 403


async def test_an_id_of_another_callers_watch_leads_to_no_change_of_its_topics(
    shared: tuple[HttpApp, TokensFile],
) -> None:
    app, callers = shared
    async with app.client() as client:

        async def watch(name: str, query: str = "") -> Any:
            headers = {**callers.of(name), "accept": "application/json"}
            return (await client.get(f"/v1/watch?max_block_ms=0{query}", headers=headers)).json()

        version = (await watch("whole"))["version"]
        app.producer.name_leader("payroll", 0, 2, 9)
        app.producer.name_leader("orders", 0, 2, 9)
        await watch("whole")
        reported = {name: await watch(name, f"&last_event_id={version}") for name in ("whole", "part")}
        assert "payroll" in str(reported["whole"]["changes"])
        assert "orders" in str(reported["part"]["changes"])
        assert "payroll" not in str(reported["part"])


def test_the_status_names_no_topic_of_others(shared: tuple[HttpApp, TokensFile]) -> None:
    app, callers = shared
    for topic in ("orders", "payroll"):
        app.app.events.emit(e.LeadersChanged(topic, [(0, (1, 4), (2, 5))]))
        app.app.events.emit(e.BatchRetried(topic, 0, 1, Errors.NOT_ENOUGH_REPLICAS, 2))
        app.app.events.emit(e.ProduceFinished(topic, 0, 1, 2, 80, 12, 0, Errors.TOPIC_AUTHORIZATION_FAILED))
    waits = tuple(TopicWait(topic, Phase.METADATA, 3, 1_000) for topic in ("orders", "payroll"))
    # A broker's own text.
    cause = Cause(Errors.INVALID_RECORD, 1, 4, 900, "Compacted topic needs keys in topic partition payroll-0")
    late = BatchCount(1, 1, 1, app.producer.clock.now_ms() - 60_000, cause)
    app.producer.waits = Backlog({None: late, 1: late}, {1: late}, {1: late}, topic_waits=waits)
    reported = {name: app.get("/v1/status", headers=callers.of(name)).text for name in ("whole", "part")}
    assert "payroll" in reported["whole"]
    assert "orders" in reported["part"]
    assert "topic partition payroll-0" in reported["whole"]
    assert Errors.INVALID_RECORD.message in reported["part"]
    assert "payroll" not in reported["part"]
