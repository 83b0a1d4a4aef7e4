"""Pages of other origins in a real browser: what an allowed one may do, and that others may do nothing.

The pages come from ports of their own on loopback: another port is another origin.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import pytest
from selenium.webdriver.common.by import By

from tests.console.conftest import sidecar_over
from tests.console.console_page import ConsolePage
from tests.support.sidecar import Sidecar
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome

    from client_core.testing import FakeCluster

#: Makes every kind of call that a page makes to the sidecar, and returns how each ended.
CALLS: Final = """
const [api, done] = arguments;
const results = {};
const tried = async (name, call) => {
  try { results[name] = await call(); } catch (error) { results[name] = error.name; }
};
(async () => {
  await tried("get", async () => {
    const answer = await fetch(`${api}/v1/topics/orders`);
    results.etag = answer.headers.get("ETag");
    results.version = answer.headers.get("Pilotfish-Metadata-Version");
    return [answer.status, (await answer.json()).name];
  });
  await tried("conditional", async () => {
    const headers = { "If-None-Match": results.etag ?? "none" };
    return (await fetch(`${api}/v1/topics/orders`, { headers, cache: "no-store" })).status;
  });
  await tried("post", async () => {
    const answer = await fetch(`${api}/v1/topics/orders/records`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: "Bearer x", "Idempotency-Key": "k1" },
      body: JSON.stringify({ records: [{ value: "by fetch" }] }),
    });
    return [answer.status, (await answer.json()).results.length];
  });
  await tried("refused", async () => {
    const answer = await fetch(`${api}/v1/topics/orders`, { method: "PUT" });
    return [answer.status, answer.headers.get("Allow")];
  });
  await tried("events", () => new Promise((resolve) => {
    const source = new EventSource(`${api}/v1/watch`);
    const end = (what) => { source.close(); resolve(what); };
    source.addEventListener("snapshot", (event) => end(JSON.parse(event.data).topics.map((t) => t.name)));
    source.onerror = () => end("error");
  }));
  done(results);
})();
"""

#: Submits a form of plain text, whose body is JSON, as a page without a script could.
FORM: Final = """
const form = document.createElement("form");
form.method = "POST"; form.enctype = arguments[1]; form.action = `${arguments[0]}/v1.0/publish/pubsub/orders`;
const field = document.createElement("input");
field.name = "a"; field.value = "b";
form.append(field); document.body.append(form); form.submit();
"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>page</title><body></body>")

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def page_of_its_own() -> Iterator[str]:
    """The origin of an empty page."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def allowed() -> Iterator[str]:
    with page_of_its_own() as origin:
        yield origin


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    with page_of_its_own() as origin:
        yield origin


@pytest.fixture(scope="module")
def opened(
    shared_cluster: FakeCluster, allowed: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sidecar]:
    """A sidecar that one of the two may call."""
    folder = tmp_path_factory.mktemp("opened")
    with sidecar_over(shared_cluster, folder, "--allowed-origins", allowed) as sidecar:
        yield sidecar


def calls_from(browser: Chrome, origin: str, sidecar: Sidecar) -> dict[str, Any]:
    browser.get(origin)
    browser.set_script_timeout(30)
    reported: dict[str, Any] = browser.execute_async_script(CALLS, sidecar.api_url)
    return reported


def test_a_page_of_an_allowed_origin_looks_up_produces_and_watches(
    browser: Chrome, opened: Sidecar, allowed: str
) -> None:
    reported = calls_from(browser, allowed, opened)
    assert reported.pop("etag").startswith('"')
    assert "-" in reported.pop("version")
    assert reported == {
        "get": [200, "orders"],
        "conditional": 304,
        "post": [200, 1],
        "refused": [405, "GET, HEAD"],
        "events": ["orders"],
    }


def test_a_page_of_another_origin_gets_nothing(browser: Chrome, opened: Sidecar, other: str) -> None:
    sent_before = opened.metric("pilotfish_records_sent_total")
    reported = calls_from(browser, other, opened)
    assert reported == {
        **dict.fromkeys(("get", "conditional", "post", "refused"), "TypeError"),
        "events": "error",
    }
    assert opened.metric("pilotfish_records_sent_total") == sent_before


def test_no_page_writes_by_a_form(browser: Chrome, opened: Sidecar, allowed: str, other: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        for origin in (allowed, other):
            browser.get(origin)
            browser.execute_script(FORM, opened.api_url, kind)
            page = ConsolePage(browser)
            page.until(lambda: "ERR_" in browser.find_element(By.TAG_NAME, "body").text)
            assert "rigin" in browser.find_element(By.TAG_NAME, "body").text, (kind, origin)
    series = 'route="/v1.0/publish/{pubsub}/{topic:path}"'
    assert series not in opened.admin.get("/metrics").text


def test_the_reference_is_opened_with_a_token(
    browser: Chrome, shared_cluster: FakeCluster, tmp_path: Path
) -> None:
    tokens = TokensFile(tmp_path, ops={"read": ["*"]})
    with Sidecar(
        tmp_path,
        bootstrap_servers=shared_cluster.bootstrap_servers,
        flags=("--tokens-file", tokens.setting),
        headers=tokens.of("ops"),
    ) as sidecar:
        browser.get(f"{sidecar.api_url}/docs")
        page = ConsolePage(browser)
        field = browser.find_element(By.ID, "token-value")
        page.until(field.is_displayed)
        field.send_keys("wrong\n")
        page.until(lambda: "does not know this token" in page.text("said"))
        field.clear()
        field.send_keys(tokens.token("ops") + "\n")
        page.until(lambda: "/v1/topics/{topic}/leader" in page.text("reference"))
        assert not field.is_displayed()
