"""What a dialect is to the app: its routes, the paths they stand under, and how its errors look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pydantic import BaseModel
from starlette.routing import BaseRoute

from service.wire.asgi import Scope
from service.wire.errors import ErrorFormat
from service.wire.schemas import Examples


class Dialect(NamedTuple):
    """One dialect over one sidecar. `prefixes` are the paths under which `error_face` holds, whose answers
    `error_model` describes.

    `is_stream` tells, by its head, a request whose body may be of any length: the dialect bounds it record by
    record, and the guards do not. It may not be true of a request that anything else would read. `open_paths`
    may be read without a token: they hold no data. `examples` are for the OpenAPI document.
    """

    routes: Sequence[BaseRoute]
    prefixes: tuple[str, ...]
    error_format: ErrorFormat
    error_model: type[BaseModel]
    is_stream: Callable[[Scope], bool] = lambda _: False
    open_paths: tuple[str, ...] = ()
    examples: Callable[[], Examples] = dict
