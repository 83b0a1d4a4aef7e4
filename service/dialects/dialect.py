"""What a dialect is to the app: its routes, the paths they stand under, and how its errors look."""

from __future__ import annotations

from typing import NamedTuple

from fastapi import APIRouter

from service.error_faces import ErrorFace


class Dialect(NamedTuple):
    """One dialect over one sidecar. `prefixes` are the paths under which `error_face` holds."""

    router: APIRouter
    prefixes: tuple[str, ...]
    error_face: ErrorFace
