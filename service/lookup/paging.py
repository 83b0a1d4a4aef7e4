"""Pages of long lists, as in AIP-158: `page_size` and `page_token` in, the next page's token out.

A token names the last item of its page, so that a page begins after it even if items came or went. It is good
for the list and the filters that it was made for, in any sidecar and after a restart; it holds no right: what
a caller may read is checked for each page. Pure.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, TypeVar

from pydantic import Field

from service.wire.errors import refused
from service.wire.schemas import Int32, Query

_T = TypeVar("_T")

#: For a token without a size, or with size 0.
DEFAULT_SIZE: Final = 1_000
#: A greater size is lowered to this one.
MAX_SIZE: Final = 10_000

#: 64 bits, against tokens of other lists and damaged ones.
_LIST_BYTES: Final = 8


class PageQuery(Query):
    """The query parameters of a list in pages. Without either, the list is whole."""

    page_size: Int32 | None = Field(
        None,
        description=f"How many items to return at most, {MAX_SIZE} or fewer; 0 means {DEFAULT_SIZE}. Without "
        "`page_size` and `page_token` the list is whole.",
    )
    page_token: str | None = Field(
        None,
        description="The token of the next page, from the previous answer, with the same filters. Empty "
        "for the first page.",
    )

    def page(self, of_list: str) -> Page | None:
        """Returns the page of this list; None for the whole list. Raises ProblemError (400) for its token."""
        if self.page_size is None and self.page_token is None:
            return None
        size = min(self.page_size or DEFAULT_SIZE, MAX_SIZE)
        return Page(of_list, size, _last_of(of_list, self.page_token) if self.page_token else None)


class Page(NamedTuple):
    """A page of a list: at most `size` items after the one with the key `after`."""

    of_list: str
    size: int
    after: str | None

    def token(self, last: object) -> str:
        """Returns the token of the page after the item with this key."""
        return _token(self.of_list, str(last).encode())

    def query(self, last: object) -> str:
        return f"page_size={self.size}&page_token={self.token(last)}"

    def cut(self, found: list[_T]) -> _T | None:
        """Cuts a list of up to size + 1 items; returns the last one if there is a next page, else None."""
        if len(found) <= self.size:
            return None
        del found[self.size :]
        return found[-1]


def numbers_after(numbers: Sequence[int], page: Page | None) -> tuple[list[int], str | None]:
    """Returns the page's part of ascending numbers, and the query of the next page, if there is one.

    Raises ProblemError (400) if the page is after what is no number.
    """
    if page is None:
        return list(numbers), None
    try:
        at = 0 if page.after is None else bisect_right(numbers, int(page.after))
    except ValueError as e:
        raise _bad_token() from e
    found = list(numbers[at : at + page.size + 1])
    last = page.cut(found)
    return found, None if last is None else page.query(last)


def _last_of(of_list: str, token: str) -> str:
    try:
        last = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))[_LIST_BYTES:].decode()
    except ValueError as e:  # in either coding
        raise _bad_token() from e
    if not last or _token(of_list, last.encode()) != token:
        raise _bad_token()
    return last


def _bad_token() -> Exception:
    return refused(
        400,
        "does not belong to this list and these filters; start again without page_token",
        place="query.page_token",
    )


def _token(of_list: str, last: bytes) -> str:
    """Returns the token: a digest of the list, its filters and the last item, and that item."""
    digest = blake2b(of_list.encode() + b"\0" + last, digest_size=_LIST_BYTES).digest()
    return base64.urlsafe_b64encode(digest + last).rstrip(b"=").decode()
