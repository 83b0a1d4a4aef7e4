"""CloudEvents over HTTP, onto Kafka by their protocol binding: binary, structured and batch."""

from __future__ import annotations

from fastapi import APIRouter

from service.deps import Sidecar
from service.dialects.dialect import Dialect
from service.error_faces import native


def dialect(sidecar: Sidecar) -> Dialect:
    """The dialect over one sidecar."""
    return Dialect(APIRouter(), (), native)
