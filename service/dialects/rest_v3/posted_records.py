"""From the texts of a stream to what is submitted, and to what will have to be said of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from service.dialects.json_members import members_of
from service.dialects.rest_v3.delivery_reports import Awaited
from service.dialects.rest_v3.errors import problem_of_record
from service.dialects.rest_v3.record_codec import PAYLOAD, record_of
from service.produce.record_stream import Item
from service.wire.strict_json import BodyError, compact

#: So much of a body is looked at in one go: 10 ms if it were nothing but the smallest of records.
PIECE_BYTES: Final = 32 * 1024

#: Records that are understood in one go: about 5 ms.
RECORDS_AT_ONCE: Final = 500


def understand(topic: str, found: Sequence[bytes | BodyError]) -> tuple[list[Item], list[Awaited]]:
    """The records, or why they are none, and what each report will need."""
    items: list[Item] = []
    awaited: list[Awaited] = []
    for one in found:
        if isinstance(one, BodyError):  # not raised again: it would hold on to all that is held here
            items.append(problem_of_record(one))
            awaited.append(Awaited())
            continue
        try:
            posted = record_of(topic, members_of(compact(one), payload=PAYLOAD))
        except BodyError as e:
            items.append(problem_of_record(e))
            awaited.append(Awaited())
        else:
            items.append(posted.record)
            awaited.append(Awaited.of(posted))
    return items, awaited
