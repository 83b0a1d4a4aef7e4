"""Which bodies are read: JSON in UTF-8, not encoded otherwise. Pure."""

from __future__ import annotations

from service.errors import refused


def check_media_type(content_type: bytes | None, encoding: bytes | None) -> None:
    """Raises a 415 for any other type, charset or content encoding."""
    if content_type != b"application/json":
        media_type, _, parameters = (content_type or b"").lower().partition(b";")
        charset = parameters.strip().replace(b'"', b"")
        if media_type.strip() != b"application/json" or charset not in (b"", b"charset=utf-8"):
            raise refused(415, "Content-Type must be application/json, in UTF-8")
    if encoding is not None and encoding.lower() != b"identity":
        raise refused(415, "Content-Encoding is not supported")
