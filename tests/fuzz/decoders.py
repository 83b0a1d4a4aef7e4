"""Every decoder of client_core and of service, as targets, in groups of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz import (
    document_targets,
    file_targets,
    head_targets,
    record_targets,
    security_targets,
    wire_targets,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.fuzz.target import Target

#: By what the results call them.
GROUPS: Final[Mapping[str, Sequence[Target]]] = {
    "Kafka's messages and answers": tuple(wire_targets.targets()),
    "record batches and codecs": tuple(record_targets.targets()),
    "authentication, certificates, producer settings": tuple(security_targets.targets()),
    "bodies: JSON, events, streams": tuple(document_targets.targets()),
    "heads of requests": tuple(head_targets.targets()),
    "files: tokens, advice, settings, manifests": tuple(file_targets.targets()),
}

ALL: Final[Sequence[Target]] = tuple(target for group in GROUPS.values() for target in group)
