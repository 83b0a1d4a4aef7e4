"""What a browser says of the page that a request comes from: Sec-Fetch-Site, -Mode and -Dest. Pure.

    same-origin, none           a page of ours, or somebody who typed the address
    same-site, cross-site       another page: another port of localhost is the same site, and another page too

A page can make a browser ask us without an Origin: for an image, a script, a frame. It can't read the answer,
but it can hold a watcher's place, or have brokers asked for topics that it made up. Only a link that somebody
follows, to see what is there in place of the page, is let in. Programs that are no browsers send none of
these headers, and no page can set them. Source: W3C Fetch Metadata Request Headers, sections 2 and 4.
"""

from __future__ import annotations

from typing import Final

from service.wire.asgi import Scope, header

SITE: Final = b"sec-fetch-site"

_OURS: Final = (b"same-origin", b"none")


def is_of_another_page(scope: Scope, site: bytes) -> bool:
    """Whether a request with that Sec-Fetch-Site is one that another page makes behind its reader's back."""
    if site in _OURS:
        return False
    follows_link = (
        scope["method"] in ("GET", "HEAD")
        and header(scope, b"sec-fetch-mode") == b"navigate"
        and header(scope, b"sec-fetch-dest") == b"document"
    )
    return not follows_link
