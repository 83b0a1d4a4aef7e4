"""The pages under `/problems`: what a problem's `type` means, and what to do (RFC 9457).

They are the same for everyone, and open without a token. A plain page without scripts or styles. Event loop
only.
"""

from __future__ import annotations

from html import escape
from typing import Final

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from service.wire.reasons import PROBLEMS_PATH, REASONS, Reason
from service.wire.responses import as_is

_BY_NAME: Final = {reason.name: reason for reason in REASONS}

#: Paths that need no token.
OPEN_PATHS: Final = frozenset({PROBLEMS_PATH, *(reason.uri for reason in REASONS)})

_HEADERS: Final = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]


def problem_routes() -> list[Route]:
    """Returns the routes; they are not in the OpenAPI document."""
    methods = ["GET", "HEAD"]
    return [
        Route(PROBLEMS_PATH, _index, methods=methods, include_in_schema=False),
        Route(f"{PROBLEMS_PATH}/{{reason}}", _one, methods=methods, include_in_schema=False),
    ]


async def _index(_: Request) -> Response:
    items = (
        f'<li><a href="{reason.uri}">{escape(reason.title)}</a>: {_html(reason.meaning)}</li>'
        for reason in REASONS
    )
    return _page("Problems", f"<ul>{''.join(items)}</ul>")


async def _one(request: Request) -> Response:
    reason = _BY_NAME.get(request.path_params["reason"])
    if reason is None:
        raise HTTPException(404)
    return _page(reason.title, _described(reason))


def _described(reason: Reason) -> str:
    return (
        f"<p><code>{reason.uri}</code>, status {', '.join(map(str, reason.statuses))}</p>"
        f"<p>{_html(reason.meaning)}</p><p>{_html(reason.remedy)}</p>"
        f'<p><a href="{PROBLEMS_PATH}">All problems</a></p>'
    )


def _page(title: str, content: str) -> Response:
    body = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)} · Pilotfish</title></head>"
        f"<body><main><h1>{escape(title)}</h1>{content}</main></body></html>"
    ).encode()
    return as_is(200, [*_HEADERS, (b"content-length", b"%d" % len(body))], body)


def _html(text: str) -> str:
    """Returns the text as HTML; what is between backticks is code."""
    parts = escape(text, quote=False).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))
