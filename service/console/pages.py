"""Serves the web pages: each path, its file, its ETag and its security headers.

    /        the console: brokers, topics, leaders and produce, live
    /docs    the API's reference: Swagger UI over /openapi.json

Everything comes from our own origin. The files hold no data, so they need no token; the data does. /docs and
the document need one. A browser can't send a token while it navigates: /docs answers 401 with the same page,
which then asks for the token (`docs_error_format`).

Swagger UI comes from the package fastapi-offline, whose files alone are used: its code is never imported.
Source of the policies: Content Security Policy Level 3, Trusted Types.

A file is read on its first request and kept as bytes: most sidecars never serve one, and Swagger UI alone is
1.5 MB. Event loop only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fastapi import Request, Response
from starlette.routing import Route

from service.wire.asgi import HeaderPairs, header_values
from service.wire.content_coding import vary_of
from service.wire.errors import Problem, Refusal, native
from service.wire.freshness import etag_of, matches
from service.wire.responses import as_is

_PAGE: Final = Path(__file__).parent / "page"

#: The package with Swagger UI (Apache 2.0), and its folder of files.
_VIEWER: Final = ("fastapi_offline", "static")

_COMMON_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; "
    b"frame-ancestors 'none'; base-uri 'none'; "
)

#: With trusted types, text can't become markup by mistake: assigning innerHTML throws.
CONSOLE_POLICY: Final = (
    _COMMON_POLICY + b"img-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
)

#: Swagger UI turns the document's Markdown into markup, and its icons are data: URLs.
DOCS_POLICY: Final = _COMMON_POLICY + b"img-src 'self' data:"

_CONSOLE_FILES: Final = {
    "/": "index.html",
    **{
        f"/console/{name}": name
        for name in (
            "base.css",
            "parts.css",
            "forms.css",
            "narrow.css",
            "icon.svg",
            "api.js",
            "brokers_view.js",
            "changes_view.js",
            "deep_links.js",
            "detail_view.js",
            "dom.js",
            "failed_view.js",
            "feed.js",
            "format.js",
            "forms.js",
            "health.js",
            "json_text.js",
            "link_view.js",
            "main.js",
            "model.js",
            "pager.js",
            "plot.js",
            "result.js",
            "sse.js",
            "state_view.js",
            "topic.js",
            "topics_view.js",
            "traffic_view.js",
        )
    },
}
DOCS: Final = "/docs"
_DOCS_PAGE: Final = "docs.html"
_DOCS_FILES: Final = {"/docs/docs.js": "docs.js", "/docs/docs.css": "docs.css"}
_VIEWER_FILES: Final = {f"/docs/{name}": name for name in ("swagger-ui.css", "swagger-ui-bundle.js")}

#: Paths open without a token: files that are the same for everyone, without data.
OPEN_PATHS: Final = frozenset({*_CONSOLE_FILES, *_DOCS_FILES, *_VIEWER_FILES})

#: Every path that `console_routes` serves.
PAGE_PATHS: Final = OPEN_PATHS | {DOCS}


HTML: Final = b"text/html; charset=utf-8"
_MEDIA_TYPES: Final = {
    ".html": HTML,
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}

#: Browsers revalidate each time, so that a page never runs another version's script.
_CACHE: Final = (b"cache-control", b"no-cache")

#: Sends no Referer; no other origin may embed a page or keep a handle on it.
PAGE_HEADERS: Final[HeaderPairs] = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Asset:
    """One file with its Content-Security-Policy."""

    def __init__(self, path: Path, policy: bytes) -> None:
        self._path = path
        self._policy = policy
        self._kept: tuple[bytes, bytes] | None = None

    def answer(self, request: Request) -> Response:
        """The file, or 304 if the browser has it. Reads it from disk the first time."""
        if self._kept is None:
            content = self._path.read_bytes()
            self._kept = content, etag_of(content)
        body, etag = self._kept
        policy = (b"content-security-policy", self._policy)
        headers = [(b"etag", etag), policy, _CACHE, *vary_of(len(body)), *PAGE_HEADERS]
        if any(matches(held, etag) for held in header_values(request.scope, b"if-none-match")):
            return as_is(304, headers, b"")
        media_type = _MEDIA_TYPES[self._path.suffix]
        head = [(b"content-type", media_type), (b"content-length", b"%d" % len(body))]
        return as_is(200, head + headers, body)


def served(asset: Asset) -> Callable[[Request], Awaitable[Response]]:
    """A route that answers with the asset. A coroutine: a function would take a pool thread per request."""

    async def serve(request: Request) -> Response:
        return asset.answer(request)

    return serve


def docs_error_format(problem: Problem) -> Refusal:
    """The error format of /docs: for 401 the page itself, which asks for a token; else JSON."""
    if problem.status != 401:
        return native(problem)
    headers = ((b"content-security-policy", DOCS_POLICY), *PAGE_HEADERS, (b"cache-control", b"no-store"))
    return Refusal(401, HTML, (_PAGE / _DOCS_PAGE).read_bytes(), headers)


def console_routes() -> list[Route]:
    """Routes to all pages and their files; none is in the OpenAPI document."""
    viewer = _viewer_folder()
    assets = {
        **{path: Asset(_PAGE / name, CONSOLE_POLICY) for path, name in _CONSOLE_FILES.items()},
        DOCS: Asset(_PAGE / _DOCS_PAGE, DOCS_POLICY),
        **{path: Asset(_PAGE / name, DOCS_POLICY) for path, name in _DOCS_FILES.items()},
        **{path: Asset(viewer / name, DOCS_POLICY) for path, name in _VIEWER_FILES.items()},
    }
    return [
        Route(path, served(asset), methods=["GET", "HEAD"], include_in_schema=False)
        for path, asset in assets.items()
    ]


def _viewer_folder() -> Path:
    """The folder of the viewer's files. The package is located, not imported: it would bring its own app."""
    package, folder = _VIEWER
    found = find_spec(package)
    assert found is not None, f"{package} is among the dependencies"
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / folder
