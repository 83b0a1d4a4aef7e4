"""Dapr's publish and bulk publish, and the calls that its SDKs poll."""

from __future__ import annotations

from fastapi import APIRouter

from service.deps import Sidecar
from service.dialects.dialect import Dialect
from service.error_faces import native


def dialect(sidecar: Sidecar) -> Dialect:
    """The dialect over one sidecar."""
    return Dialect(APIRouter(), ("/v1.0", "/v1.0-alpha1"), native)
