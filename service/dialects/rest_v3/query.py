"""What may stand in a query here: nothing."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from service.wire.schemas import NoQuery


async def no_query(_: Annotated[NoQuery, Query()]) -> None:
    """Refuses parameters (422): one that nobody heeds would mislead its caller."""
