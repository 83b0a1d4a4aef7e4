"""The pages for people, requested without a browser: their content, their headers, and what they load."""

from __future__ import annotations

import asyncio
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request

import service.console
from service.console import OPEN_PATHS, PAGE_PATHS
from service.native.openapi import ReadyDocument
from tests.support.coroutine_tests import run
from tests.support.counted_work import python_calls
from tests.support.http_app import NativeApp
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(service.console.__file__).parent / "page"
OWN_PATHS = sorted(PAGE_PATHS)
#: Files as they are, not packed.
UNPACKED = {"accept-encoding": "identity"}
PAGES = ("/", "/docs")
IMPORT = re.compile(r"""^import .* from "([^"]+)";$""", re.MULTILINE)
#: Names of namespaces and formats: nothing is fetched from them.
NAMESPACES = {"http://www.w3.org/2000/svg"}
MARKUP_SINKS = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|\.srcdoc")


class Loads(HTMLParser):
    """What a page loads or links to, and its inline parts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self._open_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [v for name, v in attrs if name in ("src", "href", "action") and v is not None]
        self.inline += [name for name in found if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in found):
            self.inline.append(tag)


@pytest.fixture(scope="module")
def app() -> NativeApp:
    """One for all: nothing here changes it."""
    return NativeApp()


def policy_of(app: NativeApp, path: str) -> dict[str, list[str]]:
    """A Content-Security-Policy as directive → sources."""
    header = app.get(path).headers["content-security-policy"]
    words = [directive.split() for directive in header.split(";")]
    return {name: sources for name, *sources in words}


def test_every_file_is_served_with_its_type_and_the_headers_that_hold_it_back(app: NativeApp) -> None:
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", "": "text/html"}
    for path in OWN_PATHS:
        answer = app.get(path, headers=UNPACKED)
        assert answer.status_code == 200, path
        assert answer.content, path
        assert answer.headers["content-type"].split(";")[0] == types[Path(path).suffix], path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers["referrer-policy"] == "no-referrer", path
        assert answer.headers["cache-control"] == "no-cache", path
        assert answer.headers["cross-origin-resource-policy"] == "same-origin", path
        assert int(answer.headers["content-length"]) == len(answer.content), path


def test_a_file_that_the_browser_holds_is_not_sent_again(app: NativeApp) -> None:
    for path in OWN_PATHS:
        etag = app.get(path).headers["etag"]
        again = app.get(path, headers={"if-none-match": etag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag), path
        assert app.get(path, headers={"if-none-match": '"another"'}).status_code == 200, path


def test_head_describes_a_page_without_sending_it(app: NativeApp) -> None:
    page, head = app.get("/", headers=UNPACKED), app.ask("HEAD", "/", headers=UNPACKED)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == page.headers["etag"]
    assert head.headers["content-length"] == str(len(page.content))


@pytest.mark.parametrize("path", PAGES)
def test_the_policy_lets_own_files_run_and_nothing_else(app: NativeApp, path: str) -> None:
    policy = policy_of(app, path)
    assert policy["default-src"] == ["'none'"]
    for directive in ("script-src", "style-src", "connect-src", "form-action"):
        assert policy[directive] == ["'self'"]
    assert policy["frame-ancestors"] == policy["base-uri"] == ["'none'"]
    assert not {"*", "'unsafe-inline'", "'unsafe-eval'"} & {s for sources in policy.values() for s in sources}
    loads = Loads(app.get(path).text)
    assert loads.inline == []
    assert {a for a in loads.addresses if not a.startswith("#")} <= OPEN_PATHS | {"/docs"}


def test_text_cannot_become_markup_on_the_console(app: NativeApp) -> None:
    policy = policy_of(app, "/")
    assert policy["require-trusted-types-for"] == ["'script'"]
    assert policy["trusted-types"] == ["'none'"]
    for script in sorted(PAGE.glob("*.js")):
        assert MARKUP_SINKS.search(script.read_text()) is None, script.name


def test_every_file_of_the_folder_and_every_import_is_served_and_no_other_host_is_named(
    app: NativeApp,
) -> None:
    served = {app.get(path).content for path in OWN_PATHS}
    for file in PAGE.iterdir():
        assert file.read_bytes() in served, file.name
        text = file.read_text()
        hosts = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w[\w./-]*", text))
        assert hosts - NAMESPACES == set(), file.name
        for name in IMPORT.findall(text) if file.suffix == ".js" else ():
            assert f"/console/{name.removeprefix('./')}" in OPEN_PATHS, f"{file.name} imports {name}"


def test_the_viewer_is_one_that_reads_this_document_and_asks_no_validator(app: NativeApp) -> None:
    document = app.get("/openapi.json").json()
    assert document["openapi"].startswith("3.0")
    version = re.search(r'PACKAGE_VERSION:"(\d+)\.', app.get("/docs/swagger-ui-bundle.js").text)
    assert version is not None
    assert int(version[1]) >= 3, "Swagger UI reads OpenAPI 3.0 from its version 3 on"
    assert "validatorUrl: null" in app.get("/docs/docs.js").text


def test_the_pages_are_no_part_of_the_document(app: NativeApp) -> None:
    assert not set(app.get("/openapi.json").json()["paths"]) & {*PAGE_PATHS, "/openapi.json"}


def test_where_the_console_is_off_there_is_none() -> None:
    app_without_console = NativeApp(console=False)
    for path in OWN_PATHS:
        answer = app_without_console.get(path)
        assert answer.status_code == 404, path
        assert answer.headers["content-type"] == "application/problem+json", path
        assert answer.json()["status"] == 404, path


def test_the_guards_are_in_front_of_the_pages_and_no_path_leads_to_another_file(app: NativeApp) -> None:
    for path in ("/", "/console/main.js", "/docs"):
        assert app.get(path, headers={"host": "rebound.example"}).status_code == 421, path
        assert app.get(path, headers={"origin": "https://elsewhere.example"}).status_code == 403, path
        assert app.ask("POST", path).status_code == 405, path
    for path in ("/console/../settings.py", "/console/%2e%2e/pages.py", "/console/", "/docs/"):
        assert app.get(path).status_code == 404, path


# -- with tokens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}], ids=["none", "wrong"])
def test_the_reference_needs_a_token_and_without_one_is_a_page_that_asks_for_it(
    app: NativeApp, tmp_path: Path, headers: dict[str, str]
) -> None:
    tokens = TokensFile(tmp_path, all={"read": ["*"]})
    guarded = NativeApp(tokens_file=tokens.setting)
    refused, let_in = guarded.get("/docs", headers=headers), guarded.get("/docs", headers=tokens.of("all"))
    assert (refused.status_code, let_in.status_code) == (401, 200)
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert refused.headers["content-type"] == "text/html; charset=utf-8"
    assert refused.headers["content-security-policy"] == let_in.headers["content-security-policy"]
    assert refused.headers["cache-control"] == "no-store"
    assert refused.content == app.get("/docs").content
    assert 'id="token-form"' in refused.text
    assert guarded.get("/openapi.json", headers=headers).status_code == 401
    for path in Loads(refused.text).addresses:
        if path.startswith("/docs/"):
            assert guarded.get(path).status_code == 200


def test_a_wrong_request_for_the_reference_is_answered_as_elsewhere(app: NativeApp) -> None:
    for answer in (app.get("/docs", headers={"host": "rebound.example"}), app.ask("POST", "/docs")):
        assert answer.headers["content-type"] == "application/problem+json"


# -- the document --------------------------------------------------------------------------------------------


def test_the_document_is_made_once_however_many_ask_and_is_not_sent_again(app: NativeApp) -> None:
    made: list[int] = []

    def make() -> dict[str, Any]:
        made.append(1)
        return {"openapi": "3.1.0"}

    document = ReadyDocument(make)

    async def asked(times: int, **headers: str) -> list[Any]:
        request = Request({"type": "http", "headers": [(n.encode(), v.encode()) for n, v in headers.items()]})
        return await asyncio.gather(*(document.answer(request) for _ in range(times)))

    first = run(asked(20))
    assert {bytes(answer.body) for answer in first} == {b'{"openapi":"3.1.0"}'}
    assert made == [1]
    etag = first[0].headers["etag"]
    (held,) = run(asked(1, **{"if-none-match": etag}))
    assert (held.status_code, held.body, held.headers["etag"]) == (304, b"", etag)
    assert made == [1]


async def test_a_caller_who_leaves_while_the_document_is_made_ends_it_for_no_other() -> None:
    may_go_on = threading.Event()

    def make() -> dict[str, Any]:
        assert may_go_on.wait(10)
        return {}

    document = ReadyDocument(make)
    request = Request({"type": "http", "headers": []})
    first, second = (asyncio.ensure_future(document.answer(request)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    may_go_on.set()
    assert (await second).body == b"{}"
    assert first.cancelled()


def test_a_making_that_failed_is_tried_again() -> None:
    outcomes: Iterator[Any] = iter([ValueError("a bug"), {"openapi": "3.1.0"}])

    def make() -> dict[str, Any]:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return dict(outcome)

    document, request = ReadyDocument(make), Request({"type": "http", "headers": []})
    with pytest.raises(ValueError, match="a bug"):
        run(document.answer(request))
    assert run(document.answer(request)).status_code == 200


def test_no_request_for_the_document_makes_anything_anew() -> None:
    """Counted, not timed: one that was made for each request took 10 ms, and 100,000 calls."""
    web = NativeApp()
    first = web.get("/openapi.json")
    assert first.status_code == 200
    calls = python_calls(lambda: web.get("/openapi.json"))
    assert calls < 3 * python_calls(lambda: web.get("/v1.0/metadata"))
    held = web.get("/openapi.json", headers={"if-none-match": first.headers["etag"]})
    assert (held.status_code, held.content) == (304, b"")
    assert web.app.api.openapi_schema is None, "its bytes are kept, and not the document as well"
