"""A dialect: its routes, path prefixes and error format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pydantic import BaseModel
from starlette.routing import BaseRoute

from service.wire.asgi import Scope
from service.wire.errors import ErrorFormat
from service.wire.schemas import Examples


class Dialect(NamedTuple):
    """One dialect for one sidecar.

    Under `prefixes` errors have `error_format`, described by `error_model`. `is_stream` recognizes, by its
    head, a request with a body of any length. The dialect limits each record, so the guards do not limit the
    body. It must be false for requests that other code would read. `open_paths` need no token: they hold no
    data. `examples` are for the OpenAPI document.
    """

    routes: Sequence[BaseRoute]
    prefixes: tuple[str, ...]
    error_format: ErrorFormat
    error_model: type[BaseModel]
    is_stream: Callable[[Scope], bool] = lambda _: False
    open_paths: tuple[str, ...] = ()
    examples: Callable[[], Examples] = dict
