"""REST Proxy v2, Confluent's contract with the extras of Strimzi's bridge and Karapace."""

from __future__ import annotations

from fastapi import APIRouter

from service.deps import Sidecar
from service.dialects.dialect import Dialect
from service.error_faces import native


def dialect(sidecar: Sidecar) -> Dialect:
    """The dialect over one sidecar."""
    return Dialect(APIRouter(), ("/topics", "/brokers"), native)
