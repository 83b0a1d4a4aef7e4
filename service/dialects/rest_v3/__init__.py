"""REST Proxy v3: what of it a producer and a metadata reader need."""

from __future__ import annotations

from fastapi import APIRouter

from service.deps import Sidecar
from service.dialects.dialect import Dialect
from service.error_faces import native


def dialect(sidecar: Sidecar) -> Dialect:
    """The dialect over one sidecar."""
    return Dialect(APIRouter(), ("/v3",), native)
