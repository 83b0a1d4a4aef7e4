"""How a Problem looks to its caller: RFC 9457 natively, and each dialect's own way under its paths.

The guards, FastAPI's handlers and the routes find the face by the request's path, so that a refusal at the
door has the shape that the caller can read. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from service.wire.errors import PROBLEM_TYPE, Problem


class Refusal(NamedTuple):
    """A problem as a response. Its headers are the problem's own (`Problem.all_headers`), and `headers`."""

    status: int
    media_type: bytes
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


ErrorFace = Callable[[Problem], Refusal]


def native(problem: Problem) -> Refusal:
    """application/problem+json."""
    return Refusal(problem.status, PROBLEM_TYPE, problem.body())


class ErrorFaces:
    """Faces by the path they hold under: `/v3` is that of `/v3` and of `/v3/…`, not of `/v3x`."""

    def __init__(self, by_prefix: Mapping[str, ErrorFace]) -> None:
        self._by_prefix = dict(by_prefix)

    def of(self, path: str) -> ErrorFace:
        """The face for a request's path; native where no dialect holds."""
        for prefix, face in self._by_prefix.items():
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/"):
                return face
        return native
