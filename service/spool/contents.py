"""A spool from outside, for people: what is in its folder, and putting back what was set aside.

`contents_of` changes nothing and needs no lock: a sidecar may use the folder meanwhile, so that what it tells
may be a moment old. `requeue` and `discard` need the folder for themselves. Called by the CLI.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from client_core import Clock
from service.base.disk import Disk
from service.spool.dead_letters import DeadLetterFolder, damaged_in, dead_letter_bytes_in, dead_letters_in
from service.spool.entry import Entry, EntryError, entry_of, next_frame
from service.spool.folder import FolderError, SpoolFolder, read_mark
from service.spool.requeue import Chosen, Requeue, Requeued
from service.spool.segments import Segments, segments_in
from service.spool.writer import SpoolWriter, WriterLimits

#: It only moves what is in the folder already.
_NO_LIMIT: Final = 2**63
_SEGMENT_BYTES: Final = 16 * 1024 * 1024


class TopicContents(NamedTuple):
    """What is to be delivered to one topic."""

    topic: str
    records: int
    oldest_wall_ms: int


class DeadLetterRow(NamedTuple):
    """A record that was set aside. `topic` None: this version does not understand it."""

    sequence: int
    topic: str | None
    reason: str
    detail: str
    at_wall_ms: int


class Contents(NamedTuple):
    """What a spool holds: records to deliver by topic, what was set aside, damaged files with their bytes."""

    topics: list[TopicContents]
    bytes: int
    aside: list[DeadLetterRow]
    damaged: list[tuple[str, int]]


class RequeueError(Exception):
    """Some records could not be put back; they lie where they were."""


def contents_of(path: Path) -> Contents:
    """What is in the folder. Raises FolderError where it is no spool's, OSError where it can't be read."""
    _check(path)
    mark = read_mark(path, Disk())
    topics: dict[str, TopicContents] = {}
    for sequence, entry in _entries(path):
        topic = entry.record.topic
        if mark.is_done(sequence, topic):
            continue
        _, records, oldest_wall_ms = topics.get(topic, TopicContents(topic, 0, entry.accepted_wall_ms))
        oldest_wall_ms = min(oldest_wall_ms, entry.accepted_wall_ms)
        topics[topic] = TopicContents(topic, records + 1, oldest_wall_ms)
    total_bytes = sum(segments_in(path).values()) + dead_letter_bytes_in(path)
    aside = [
        DeadLetterRow(one.sequence, one.topic, one.reason, one.detail, one.at_wall_ms)
        for file in dead_letters_in(path)
        for one in file.records
    ]
    return Contents(sorted(topics.values()), total_bytes, aside, damaged_in(path))


def discard(path: Path, chosen: Chosen) -> int:
    """Takes records that were set aside away for good; how many.

    Raises FolderError where the folder is in use or no spool's, OSError.
    """
    _check(path)
    folder = SpoolFolder(path)
    disk = Disk()
    try:
        aside = DeadLetterFolder(path, disk, read_mark(path, disk))
        taken = 0
        for file in dead_letters_in(path):
            left = [one for one in file.records if not chosen(one)]
            if len(left) < len(file.records):
                aside.leave_only(file, left)
            taken += len(file.records) - len(left)
        return taken
    finally:
        folder.close()


def requeue(path: Path, chosen: Chosen, clock: Clock) -> int:
    """Puts records that were set aside behind those of the spool, to be delivered; how many.

    Those that this version can't read stay. Raises FolderInUseError where a sidecar has the folder,
    FolderError where it is no spool's, RequeueError where the disk does not take the records, OSError.
    """
    _check(path)
    folder = SpoolFolder(path)
    try:
        disk = Disk()
        mark = read_mark(path, disk)
        aside = DeadLetterFolder(path, disk, mark)
        segments = Segments(path, disk)
        segments.next_sequence = max(segments.next_sequence, mark.done)
        writer = SpoolWriter(
            segments,
            clock,
            WriterLimits(_NO_LIMIT, _SEGMENT_BYTES),
            call=lambda function: function(),
            committed=lambda: None,
            dead_letter_bytes=lambda: 0,
        )
        ends: list[Requeued] = []
        requeue = Requeue(aside, writer.put_back, chosen, wake=lambda: None, ended=ends.append)
        while not requeue.is_over:
            requeue.go_on()
            writer.turn()
        (end,) = ends
        if end.fault is not None:
            raise RequeueError(end.fault)
        return end.records
    finally:
        folder.close()


def _entries(path: Path) -> Iterator[tuple[int, Entry]]:
    """All sound records of all files, void ones left out."""
    segments = list(segments_in(path))
    successors = [*segments[1:], None]
    for segment, successor in zip(segments, successors, strict=False):  # of none there is one too many
        until = _NO_LIMIT if successor is None else successor.first_sequence
        try:
            data = (path / segment.name).read_bytes()
        except FileNotFoundError:
            continue  # delivered meanwhile
        at = 0
        while (found := next_frame(segment.salt, data, at)) is not None:
            _, frame = found
            at = frame.end
            if frame.sequence >= until:
                break
            try:
                yield frame.sequence, entry_of(frame.version, frame.payload)
            except EntryError:
                continue  # it will be set aside, and shown there


def _check(path: Path) -> None:
    if not (path / "lock").is_file():
        raise FolderError(f"{path} is not the folder of a spool: it has no lock file")
