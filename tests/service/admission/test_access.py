"""The access that each token gives, and what each caller sees: over HTTP, with a fake producer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from client_core import MetadataResult
from service.admission.access import Access
from service.admission.caller import ANYONE, Caller, TopicRules, not_authorized
from service.base.settings import Settings
from service.base.watched_file import FileFaultError
from service.process.admin import make_registry
from service.process.app import App
from service.wire.asgi import ABORT
from service.wire.errors import ProblemError
from service.wire.waiting import CallerGoneError
from tests.support.coroutine_tests import run, until
from tests.support.fake_producer import FakeProducer
from tests.support.file_looks import FileLooks
from tests.support.http_app import HttpApp
from tests.support.secured_settings import MountedSecret
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

ONE = b'{"records":[{"value":1}]}'
JSON = {"content-type": "application/json"}
ORDERS = {"read": ["orders"], "produce": ["orders"]}
ALL = {"read": ["*"], "produce": ["*"]}


@pytest.fixture
def tokens(tmp_path: Path) -> TokensFile:
    return TokensFile(tmp_path, shop=ORDERS, audit={"read": ["*"]}, writer={"produce": ["o*"]})


@pytest.fixture
def web(tokens: TokensFile) -> HttpApp:
    app = HttpApp(dialects=(), tokens_file=tokens.setting)
    app.producer.set_topics({"orders": 3, "hidden": 3})
    return app


@pytest.fixture
def looks(web: HttpApp) -> FileLooks:
    """The looks at the tokens file."""
    assert web.app.access is not None
    return FileLooks(web.app.access)


# -- tokens --------------------------------------------------------------------------------------------------


def test_without_a_token_no_request_is_let_in_and_nothing_is_done(web: HttpApp) -> None:
    for answer in (
        web.get("/v1/topics/orders"),
        web.produce(ONE),
        web.get("/v1/status"),
        web.get("/nothing"),
    ):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="pilotfish"'
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["vary"] == "Authorization"
        assert "Bearer" in answer.json()["detail"]
    assert web.producer.submitted == []


def test_a_token_lets_its_caller_in(web: HttpApp, tokens: TokensFile) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        answer = web.get("/v1/topics/orders", headers={"authorization": f"{scheme} {tokens.token('shop')}"})
        assert answer.status_code == 200, scheme


def test_a_wrong_token_is_none(web: HttpApp) -> None:
    for said in (
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Bearer shop-0123456789abcde",
        "Bearer shop-0123456789abcdef0",
        "Bearer shop-0123456789abcdef shop-0123456789abcdef",
        "Bearer SHOP-0123456789ABCDEF",
        "Bearer \xff",
        "Bearer " + hashlib.sha256(b"shop-0123456789abcdef").hexdigest(),
    ):
        answer = web.get("/v1/topics/orders", headers={b"authorization": said.encode("latin-1")})
        assert answer.status_code == 401, said
        assert "0123456789" not in answer.text, said
        assert answer.headers["www-authenticate"] == 'Bearer realm="pilotfish", error="invalid_token"', said


def test_another_scheme_is_as_good_as_no_token(web: HttpApp) -> None:
    for said in ("Basic c2hvcDp4", "shop-0123456789abcdef", "Bearershop-0123456789abcdef", ""):
        answer = web.get("/v1/topics/orders", headers={"authorization": said})
        assert answer.status_code == 401, said
        assert answer.headers["www-authenticate"] == 'Bearer realm="pilotfish"', said


def test_a_duplicate_authorization_header_is_refused(web: HttpApp, tokens: TokensFile) -> None:
    for order in (1, -1):
        both = [tokens.of("shop")["authorization"], tokens.of("audit")["authorization"]][::order]
        answer = web.get("/v1/topics/orders", headers=[("authorization", said) for said in both])
        assert answer.status_code == 400, order
        assert 'error="invalid_request"' in answer.headers["www-authenticate"], order


def test_daprs_clients_may_show_their_token_in_daprs_own_header(tokens: TokensFile) -> None:
    web = HttpApp(tokens_file=tokens.setting)
    header = {"dapr-api-token": tokens.token("shop")}
    assert web.get("/v1.0/metadata", headers=header).status_code == 200
    assert web.get("/v1/status", headers=header).status_code == 401
    assert web.get("/v1.0/metadata", headers={"dapr-api-token": "wrong"}).status_code == 401
    assert web.get("/v1.0/metadata", headers=header | tokens.of("shop")).status_code == 400


def test_pages_without_data_are_open_to_be_read(web: HttpApp) -> None:
    for path in ("/", "/console/main.js", "/docs/docs.js", "/docs/swagger-ui-bundle.js"):
        assert web.get(path).status_code == web.ask("HEAD", path).status_code == 200, path
        assert web.post(path).status_code == 401, path
        assert web.get(path, headers={"host": "evil.example"}).status_code == 421, path


def test_what_merely_looks_open_is_not(web: HttpApp) -> None:
    for path in ("/docs/", "/docs/..%2Fv1/status", "/docs/../v1/status", "/console"):
        assert web.get(path).status_code in (400, 401), path


def test_without_the_page_nothing_is_open(tokens: TokensFile) -> None:
    web = HttpApp(dialects=(), tokens_file=tokens.setting, console=False)
    assert [web.get(path).status_code for path in ("/", "/docs", "/openapi.json")] == [401] * 3
    assert web.get("/openapi.json", headers=tokens.of("shop")).status_code == 200


def test_without_a_tokens_file_authorization_is_nobodys_business() -> None:
    web = HttpApp(dialects=())
    web.producer.set_topics({"orders": 3})
    for headers in ([("authorization", "Bearer x")] * 2, []):
        answer = web.get("/v1/topics/orders", headers=headers)
        assert answer.status_code == 200
        assert "vary" not in answer.headers


@pytest.mark.parametrize("text", ["", "[[token]]\nname = 'a'", None])
def test_a_tokens_file_that_cannot_be_used_is_an_error_at_the_start(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "tokens.toml"
    if text is not None:
        path.write_text(text)
    settings = Settings(kafka={"bootstrap.servers": "localhost:9092"}, tokens_file=str(path))
    with pytest.raises(FileFaultError, match=r"^tokens_file: .*tokens\.toml"):
        App(settings, FakeProducer())


# -- visible topics ------------------------------------------------------------------------------------------


FAST = ("", "/partitions/0", "/leader?partition=0", "/leader?key=a")
SLOW = ("?max_age_ms=100000", "/leader?partition=0&max_block_ms=50", "/leader?key=%C3%A4", "/partitions/99")


def test_a_topic_that_is_not_allowed_looks_the_same_whether_it_is_there_or_not(
    web: HttpApp, tokens: TokensFile
) -> None:
    for rest in (*FAST, *SLOW, "?max_block_ms=10", "?max_age_ms=0", "?min_version=x-1"):
        there, missing = (
            web.get(f"/v1/topics/{topic}{rest}", headers=tokens.of("shop")) for topic in ("hidden", "absent")
        )
        expected = 412 if "min_version" in rest else 403
        assert (there.status_code, missing.status_code) == (expected, expected), rest
        assert there.text.replace("hidden", "absent") == missing.text, rest
        assert dict(there.headers) == dict(missing.headers), rest
        assert web.producer.calls == [], rest


def test_a_topic_that_is_not_allowed_is_refused_by_kafkas_name(web: HttpApp, tokens: TokensFile) -> None:
    answer = web.get("/v1/topics/hidden", headers=tokens.of("shop"))
    reported = {name: answer.json()[name] for name in ("kafka_error", "code", "retriable", "written")}
    expected = {"kafka_error": "TOPIC_AUTHORIZATION_FAILED", "code": 29, "retriable": False, "written": "no"}
    assert reported == expected


def test_a_caller_knows_what_it_may_read_and_what_it_may_write() -> None:
    caller = Caller("c", TopicRules.of(["r", "b*"]), TopicRules.of(["w", "b*"]))

    for check, allowed in ((caller.check_read, "r"), (caller.check_produce, "w")):
        for topic in (allowed, "b", "bx"):
            check(topic)
        for topic in ("w" if allowed == "r" else "r", "rx", ""):
            with pytest.raises(ProblemError) as refused:
                check(topic)
            assert refused.value.problem == not_authorized(topic)
    assert caller.split(["w", "bx", "r"]) == (["bx", "r"], ["w"])
    assert [one.may_read_all for one in (caller, ANYONE)] == [False, True]


def test_the_file_is_followed_until_the_close(tokens: TokensFile) -> None:
    access = Access(tokens.setting, lambda _: None)
    looks = FileLooks(access)
    looks.look()
    for _ in range(2):
        access.close()
        assert looks.due is None


def test_another_spelling_of_a_topic_is_the_same_topic(web: HttpApp, tokens: TokensFile) -> None:
    for path in ("/v1/topics/%68idden", "/v1/topics/hidde%6E/leader?partition=0"):
        assert web.get(path, headers=tokens.of("shop")).status_code == 403, path
        assert web.get(path, headers=tokens.of("audit")).status_code == 200, path


def test_a_look_up_that_is_not_allowed_leaves_no_trace_of_use(web: HttpApp, tokens: TokensFile) -> None:
    web.get("/v1/topics/hidden", headers=tokens.of("shop"))
    assert not web.producer.cache.topics["hidden"].use.touched
    web.get("/v1/topics/hidden", headers=tokens.of("audit"))
    assert web.producer.cache.topics["hidden"].use.touched


def test_a_token_that_may_read_a_topic_gets_the_same_answer_as_without_tokens(
    web: HttpApp, tokens: TokensFile
) -> None:
    open_to_all = HttpApp(dialects=())
    open_to_all.producer.set_topics({"orders": 3, "hidden": 3})
    for rest in (*FAST, *SLOW):
        plain = open_to_all.get(f"/v1/topics/orders{rest}")
        answer = web.get(f"/v1/topics/orders{rest}", headers=tokens.of("shop"))
        assert (answer.status_code, answer.content) == (plain.status_code, plain.content), rest
        assert answer.headers["vary"] == "Authorization", rest
        assert {n for n in answer.headers if n != "vary"} == set(plain.headers), rest


def test_a_prepared_answer_is_not_changed_by_those_who_get_it(web: HttpApp, tokens: TokensFile) -> None:
    answers = [web.get("/v1/topics/orders", headers=tokens.of("shop")) for _ in range(3)]
    assert [answer.headers.get_list("vary") for answer in answers] == [["Authorization"]] * 3


def test_an_unchanged_answer_is_not_sent_again(web: HttpApp, tokens: TokensFile) -> None:
    etag = web.get("/v1/topics/orders", headers=tokens.of("shop")).headers["etag"]
    held = {"if-none-match": etag}
    again = web.get("/v1/topics/orders", headers={**tokens.of("shop"), **held})
    assert (again.status_code, again.headers["vary"]) == (304, "Authorization")
    assert web.get("/v1/topics/orders", headers={**tokens.of("writer"), **held}).status_code == 403
    assert web.get("/v1/topics/orders", headers=held).status_code == 401


def test_the_list_has_what_the_caller_may_read(web: HttpApp, tokens: TokensFile) -> None:
    web.producer.on_brokers = {"orders": 3, "hidden": 3, "other": 1, "__consumer_offsets": 50}

    def listed(name: str, query: str = "") -> tuple[list[str], str]:
        answer = web.get(f"/v1/topics{query}", headers=tokens.of(name))
        return [topic["name"] for topic in answer.json()["topics"]], answer.headers["etag"]

    all_of_them, tag_of_all = listed("audit")
    own, own_tag = listed("shop")
    assert all_of_them == ["hidden", "orders", "other"]
    assert own == ["orders"]
    assert own_tag != tag_of_all
    assert listed("writer")[0] == []
    assert listed("audit", "?internal=true")[0] == ["__consumer_offsets", *all_of_them]
    assert listed("shop", "?internal=true&prefix=o")[0] == ["orders"]
    for name in ("audit", "shop"):
        held = {**tokens.of(name), "if-none-match": own_tag}
        assert web.get("/v1/topics", headers=held).status_code == (304 if name == "shop" else 200)


def test_a_broker_leads_what_the_caller_may_read(web: HttpApp, tokens: TokensFile) -> None:
    def leads(name: str) -> list[str]:
        answer = web.get("/v1/brokers/1", headers=tokens.of(name))
        return [led["topic"] for led in answer.json()["leads"]]

    assert (leads("audit"), leads("shop"), leads("writer")) == (["hidden", "orders"], ["orders"], [])


def test_many_leaders_are_split_into_allowed_and_not(web: HttpApp, tokens: TokensFile) -> None:
    asked = [{"topic": topic, "partition": 0} for topic in ("hidden", "orders", "absent", "hidden")]
    answer = web.post("/v1/leaders", json={"lookups": asked}, headers=tokens.of("shop"))
    assert answer.status_code == 200
    hidden, orders, absent, again = answer.json()["results"]
    assert orders["topic"] == "orders"
    assert hidden["error"]["kafka_error"] == "TOPIC_AUTHORIZATION_FAILED"
    assert again == hidden
    assert json.dumps(hidden).replace("hidden", "absent") == json.dumps(absent)
    assert web.producer.calls == []


def test_the_age_of_an_answer_is_that_of_topics_that_its_caller_may_read(
    web: HttpApp, tokens: TokensFile
) -> None:
    """Otherwise a caller would see which names exist."""
    web.producer.clock.advance(3_000)
    web.producer.set_topics({"orders": 3}, partial=True)

    def ages(topic: str, name: str) -> list[str]:
        asked = {"lookups": [{"topic": "orders", "partition": 0}, {"topic": topic, "partition": 0}]}
        answers = (
            web.post("/v1/leaders", json=asked, headers=tokens.of(name)),
            web.get("/v1/brokers/1", headers=tokens.of(name)),
        )
        return [answer.headers["age"] for answer in answers]

    assert ages("hidden", "shop") == ages("absent", "shop") == ["0", "0"]
    assert ages("hidden", "audit") == ["3", "3"]


def test_many_leaders_none_of_which_is_allowed_ask_nobody(web: HttpApp, tokens: TokensFile) -> None:
    asked = [{"topic": topic, "partition": 0} for topic in ("hidden", "absent")]
    web.producer.clock.advance(60_000)
    answer = web.post("/v1/leaders?max_age_ms=0", json={"lookups": asked}, headers=tokens.of("shop"))
    assert [item["error"]["code"] for item in answer.json()["results"]] == [29, 29]
    assert web.producer.calls == []


def test_a_produce_that_is_not_allowed_is_refused_before_its_body_is_read(
    web: HttpApp, tokens: TokensFile
) -> None:
    for path in ("/v1/topics/{}/records", "/v1/topics/{}/record%73"):
        for topic in ("hidden", "absent"):
            answer = web.post(path.format(topic), content=b"{", headers={**tokens.of("shop"), **JSON})
            assert answer.status_code == 403, path
            assert answer.json()["kafka_error"] == "TOPIC_AUTHORIZATION_FAILED", path
        assert web.producer.calls == [], path
        assert web.producer.submitted == [], path


def test_reading_and_producing_are_rights_of_their_own(web: HttpApp, tokens: TokensFile) -> None:
    def both(name: str) -> tuple[int, int]:
        headers = {**tokens.of(name), **JSON}
        produced = web.post("/v1/topics/orders/records", content=ONE, headers=headers)
        return web.get("/v1/topics/orders", headers=headers).status_code, produced.status_code

    assert (both("shop"), both("audit"), both("writer")) == ((200, 200), (200, 403), (403, 200))


# -- reloads -------------------------------------------------------------------------------------------------


def test_a_removed_token_stops_working_and_a_new_one_begins_to(
    web: HttpApp, tokens: TokensFile, looks: FileLooks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert web.get("/v1/topics/orders", headers=tokens.of("shop")).status_code == 200
    tokens.write(audit=ALL, newcomer=ORDERS)
    looks.look()
    status = {n: web.get("/v1/topics/orders", headers=tokens.of(n)).status_code for n in ("shop", "newcomer")}
    assert status == {"shop": 401, "newcomer": 200}
    assert reloads(web) == {"success": 1, "failure": 0}
    assert "tokens_file: read again" in caplog.text
    assert tokens.token("newcomer") not in caplog.text


def test_rights_that_changed_hold_from_then_on(web: HttpApp, tokens: TokensFile, looks: FileLooks) -> None:
    def seen() -> list[int]:
        return [
            web.get(f"/v1/topics/{topic}", headers=tokens.of("shop")).status_code
            for topic in ("orders", "hidden")
        ]

    assert seen() == [200, 403]
    tokens.write(shop={"read": ["hidden"]})
    looks.look()
    assert seen() == [403, 200]


def test_a_file_that_went_wrong_leaves_the_tokens_in_force(
    web: HttpApp, tokens: TokensFile, looks: FileLooks, caplog: pytest.LogCaptureFixture
) -> None:
    for text in ("[[token]]\nname = 1", ""):
        tokens.path.write_text(text)
        for _ in range(3):
            looks.look()
        assert web.get("/v1/topics/orders", headers=tokens.of("shop")).status_code == 200
    tokens.path.unlink()
    looks.look()
    assert web.get("/v1/topics/orders", headers=tokens.of("shop")).status_code == 200
    assert reloads(web) == {"success": 0, "failure": 3}
    assert caplog.text.count("the earlier value stays in use") == 3


def test_tokens_that_a_kubelet_swaps_are_in_force_and_wrong_ones_are_not(tmp_path: Path) -> None:
    orders = {"read": ["orders"]}
    tokens = TokensFile(tmp_path, shop=orders)
    before, after = tokens.entry("shop", **orders), tokens.entry("audit", **orders)
    mounted = MountedSecret(tmp_path / "mounted", {"tokens.toml": before})
    web = HttpApp(tokens_file=str(mounted.path("tokens.toml")))
    web.producer.set_topics({"orders": 3})
    assert web.app.access is not None
    looks = FileLooks(web.app.access)

    def statuses() -> list[int]:
        """What shop and audit get."""
        return [
            web.get("/v1/topics/orders", headers=tokens.of(name)).status_code for name in ("shop", "audit")
        ]

    def swap(text: str) -> None:
        mounted.swap({"tokens.toml": text})
        looks.look()

    assert statuses() == [200, 401]
    swap(after)
    assert statuses() == [401, 200]
    swap("[[token]]\nname = 'half'")
    assert statuses() == [401, 200], "what was right before stays in force"
    assert reloads(web) == {"success": 1, "failure": 1}


def reloads(web: HttpApp) -> dict[str, float]:
    registry = make_registry(web.app)
    name = "pilotfish_credential_reloads_total"
    return {o: registry.get_sample_value(name, {"outcome": o}) or 0 for o in ("success", "failure")}


# -- requests that go on when their token is gone ------------------------------------------------------------


class Stream:
    """One request that goes on, behind the guards: parts go in and out as the test says."""

    def __init__(self, web: HttpApp, headers: dict[str, str]) -> None:
        self.sent: list[Any] = []
        self.aborted = False
        self._received = [{"type": "http.request", "body": b"x", "more_body": True}] * 9
        self._entry = web.app._entry
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/stream",
            "raw_path": b"/v1/stream",
            "query_string": b"",
            "headers": [(n.encode(), v.encode()) for n, v in {"host": "localhost", **headers}.items()],
            ABORT: self._abort,
        }

    def _abort(self) -> None:
        self.aborted = True

    async def run(self, app: Any) -> None:
        """Lets the app serve the request, as the guards hand it on."""
        self._entry._app = app
        await self._entry(self.scope, self._receive, self._send)

    async def _receive(self) -> Any:
        return self._received.pop()

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


@pytest.mark.parametrize("can_abort", [True, False])
@pytest.mark.parametrize("now", [{}, {"shop": {"read": ["orders"]}}])
def test_an_answer_that_goes_on_is_cut_off_when_its_token_is_gone_or_has_other_rights(
    web: HttpApp, tokens: TokensFile, looks: FileLooks, now: dict[str, Any], can_abort: bool
) -> None:
    stream = Stream(web, tokens.of("shop"))
    if not can_abort:
        del stream.scope[ABORT]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"1", "more_body": True})
        assert (await receive())["type"] == "http.request"
        tokens.write(**now)
        looks.look()
        with pytest.raises(CallerGoneError):
            await send({"type": "http.response.body", "body": b"2", "more_body": True})
        assert stream.aborted is can_abort
        assert (await receive())["type"] == "http.disconnect"

    run(stream.run(app))
    assert [message.get("body") for message in stream.sent] == [None, b"1"]


def test_no_more_input_is_read_from_a_caller_whose_token_is_gone(
    web: HttpApp, tokens: TokensFile, looks: FileLooks
) -> None:
    stream = Stream(web, tokens.of("shop"))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        tokens.write()
        looks.look()
        assert (await receive())["type"] == "http.disconnect"
        assert stream.aborted

    run(stream.run(app))


def requests_with(web: HttpApp, code: str) -> list[float]:
    """The counts of answered requests with this status, by method and route."""
    return [
        sample.value
        for family in web.app.sidecar.http.collect()
        for sample in family.samples
        if sample.name == "pilotfish_http_requests_total" and sample.labels["code"] == code and sample.value
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/topics/later?max_block_ms=60000"),
        ("HEAD", "/v1/topics/later?max_block_ms=60000"),
        ("GET", "/v1/topics/l%61ter?max_block_ms=60000"),
        ("POST", "/v1/leaders?max_block_ms=60000"),
        ("POST", "/v1/%6Ceaders?max_block_ms=60000"),
    ],
)
@pytest.mark.parametrize("left", [{}, {"shop": ORDERS, "audit": {"read": ["orders"]}}], ids=["gone", "less"])
async def test_a_look_up_that_waited_while_its_token_changed_is_not_answered(
    web: HttpApp, tokens: TokensFile, looks: FileLooks, method: str, path: str, left: dict[str, Any]
) -> None:
    content = b'{"lookups":[{"topic":"later","partition":0}]}' if method == "POST" else None
    async with web.client() as client:
        headers = JSON | tokens.of("audit")
        asking = asyncio.ensure_future(client.request(method, path, headers=headers, content=content))
        await until(lambda: web.producer.waiting)
        tokens.write(**left)
        looks.look()
        web.producer.set_topics({"orders": 3, "later": 1})
        web.producer.finish(web.producer.waiting[0], MetadataResult(web.producer.cache))
        answer = await asking
    assert answer.status_code == 503
    counted = {code: counts for code in ("200", "503") if (counts := requests_with(web, code))}
    assert counted == {"503": [1]}
    assert "etag" not in answer.headers
    if method != "HEAD":
        assert (answer.json()["retriable"], answer.json()["written"]) == (True, "no")
        assert "token was removed or its rights changed" in answer.json()["detail"]


async def test_a_refused_look_up_is_counted_once_though_its_topic_is_missing(
    web: HttpApp, tokens: TokensFile, looks: FileLooks
) -> None:
    async with web.client() as client:
        path = "/v1/topics/later?max_block_ms=60000"
        asking = asyncio.ensure_future(client.get(path, headers=tokens.of("audit")))
        await until(lambda: web.producer.waiting)
        tokens.write()
        looks.look()
        web.producer.say_unknown(web.producer.waiting[0])
        assert (await asking).status_code == 503
    assert (requests_with(web, "503"), requests_with(web, "404")) == ([1], [])


async def test_the_outcome_of_records_is_reported_though_the_token_is_gone(
    web: HttpApp, tokens: TokensFile, looks: FileLooks
) -> None:
    web.producer.holds_records = True
    async with web.client() as client:
        headers = JSON | tokens.of("shop")
        asking = asyncio.ensure_future(client.post("/v1/topics/orders/records", content=ONE, headers=headers))
        await until(lambda: web.producer.waiting)
        tokens.write()
        looks.look()
        web.producer.acknowledge(web.producer.waiting[0])
        assert (await asking).status_code == 200


def test_an_answer_goes_on_when_the_file_changes_for_others(
    web: HttpApp, tokens: TokensFile, looks: FileLooks
) -> None:
    stream = Stream(web, tokens.of("shop"))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        tokens.write(shop=ORDERS)
        looks.look()
        assert (await receive())["type"] == "http.request"
        await send({"type": "http.response.body", "body": b"1", "more_body": True})

    run(stream.run(app))
    assert not stream.aborted


def test_nothing_that_a_caller_sends_turns_up_in_a_log(
    web: HttpApp, tokens: TokensFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for headers in (tokens.of("shop"), {"authorization": "Bearer my-secret"}):
        web.get("/v1/topics/hidden", headers=httpx.Headers(headers))
    assert not [line for line in caplog.messages if tokens.token("shop") in line or "my-secret" in line]
    assert tokens.token("shop") not in repr(web.settings)
