"""Lists a spool folder's contents, and requeues or discards dead letters, for the CLI.

`contents_of` changes nothing and needs no lock. A sidecar may use the folder at the same time, so the result
may be slightly out of date. `requeue` and `discard` lock the folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from client_core import Clock
from service.base.disk import Disk
from service.spool.dead_letters import DeadLetterFolder, damaged_in, dead_letter_bytes_in, dead_letters_in
from service.spool.entry import Entry, EntryError, entry_of, next_frame
from service.spool.folder import FolderError, SpoolFolder, read_mark
from service.spool.requeue import Chosen, Requeue, Requeued
from service.spool.segments import Segments, segments_in
from service.spool.writer import SpoolWriter

#: As a byte limit: a requeue only moves what is in the folder. As a number: above every entry.
_NO_LIMIT: Final = sys.maxsize
_SEGMENT_BYTES: Final = 16 * 1024 * 1024


class TopicContents(NamedTuple):
    """The records to deliver to one topic. `oldest_wall_ms`: when the oldest was accepted."""

    topic: str
    records: int
    oldest_wall_ms: int


class DeadLetterRow(NamedTuple):
    """A dead letter. `topic` None: this version cannot decode the record."""

    sequence: int
    topic: str | None
    reason: str
    detail: str
    at_wall_ms: int


class Contents(NamedTuple):
    """The contents of a spool: records to deliver by topic, dead letters, damaged files with their bytes."""

    topics: list[TopicContents]
    bytes: int
    dead_letters: list[DeadLetterRow]
    damaged: list[tuple[str, int]]


class RequeueError(Exception):
    """Some records could not be requeued; they are still dead letters."""


def contents_of(path: Path) -> Contents:
    """Returns what a folder has. Raises FolderError if it is no spool's, OSError if it can't be read."""
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
    dead_letters = [
        DeadLetterRow(one.sequence, one.topic, one.reason, one.detail, one.at_wall_ms)
        for file in dead_letters_in(path)
        for one in file.records
    ]
    return Contents(sorted(topics.values()), total_bytes, dead_letters, damaged_in(path))


def discard(path: Path, chosen: Chosen) -> int:
    """Deletes the chosen dead letters for good; returns how many.

    Raises FolderError if the folder is in use, another user's or no spool's, or OSError.
    """
    _check(path)
    with closing(SpoolFolder(path)):
        _check_user(path)
        disk = Disk()
        dead_letters = DeadLetterFolder(path, disk, read_mark(path, disk))
        taken = 0
        for file in dead_letters_in(path):
            left = [one for one in file.records if not chosen(one)]
            if len(left) < len(file.records):
                dead_letters.keep_only(file, left)
            taken += len(file.records) - len(left)
        return taken


def requeue(path: Path, chosen: Chosen, clock: Clock) -> int:
    """Moves the chosen dead letters back into the spool, behind its records; returns how many.

    Records that this version cannot decode stay. Raises FolderInUseError if a sidecar uses the folder,
    FolderError if it is another user's or no spool's, RequeueError if the disk does not accept the records,
    or OSError.
    """
    _check(path)
    with closing(SpoolFolder(path)) as folder:
        _check_user(path)
        disk = Disk()
        mark = read_mark(path, disk)
        dead_letters = DeadLetterFolder(path, disk, mark)
        segments = Segments(path, disk)
        segments.skip_to(max(mark.done, dead_letters.last_sequence + 1))
        writer = SpoolWriter(
            segments,
            clock,
            max_bytes=_NO_LIMIT,
            segment_bytes=_SEGMENT_BYTES,
            call=lambda function: function(),
            committed=lambda: None,
            dead_letter_bytes=lambda: 0,
            keep_folder=folder.keep,
        )
        ends: list[Requeued] = []
        requeue = Requeue(dead_letters, writer.put_back, chosen, wake=lambda: None, ended=ends.append)
        while not requeue.is_over:
            requeue.go_on()
            writer.turn()
        (end,) = ends
        if end.fault is not None:
            raise RequeueError(end.fault)
        return end.records


def _entries(path: Path) -> Iterator[tuple[int, Entry]]:
    """Yields the sound records of all files, without superseded ones (segments.py)."""
    segments = list(segments_in(path))
    ends = [*(segment.first_sequence for segment in segments[1:]), _NO_LIMIT]
    for segment, until in zip(segments, ends, strict=False):  # unequal if there are none
        try:
            data = (path / segment.name).read_bytes()
        except FileNotFoundError:
            continue  # delivered in the meantime
        at = 0
        while (found := next_frame(segment.salt, data, at)) is not None:
            _, frame = found
            at = frame.end
            if frame.sequence < until:
                with suppress(EntryError):  # delivery will make it a dead letter
                    yield frame.sequence, entry_of(frame.version, frame.payload)


def _check(path: Path) -> None:
    if not (path / "lock").is_file():
        raise FolderError(f"{path} is not the folder of a spool: it has no lock file")


def _check_user(path: Path) -> None:
    """Raises FolderError if the folder is another user's: its sidecar could not read what root writes."""
    owner, user = (path / "lock").stat().st_uid, os.geteuid()
    if owner != user:
        raise FolderError(
            f"{path} belongs to user {owner}, whose sidecar could not read files of user {user}; call this "
            f"as user {owner}, such as by `sudo -u '#{owner}'`"
        )
