"""Publish and bulk publish: from a request to records, from outcomes to Dapr's answers.

    all acknowledged   204
    one event failed   Dapr's error (errors.py)
    some of a bulk     500 with failedEntries: their ids, so that the caller can resend them

A single publish is a bulk of one entry. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import msgspec
from fastapi import Request, Response

from client_core import ProducerRecord
from service.admission.body import announced_bytes, read_body
from service.admission.caller import caller_of
from service.dialects.dapr import errors
from service.dialects.dapr.bulk_codec import Entry, parse_entries
from service.dialects.dapr.envelope import (
    CLOUD_EVENT,
    DEFAULT_CONTENT_TYPE,
    JSON,
    Trace,
    app_id,
    is_media_type,
)
from service.dialects.dapr.event_records import NO_CHARACTER, EventRecords, Target
from service.dialects.dapr.publish_metadata import metadata_of_query, understand
from service.observe.request_trace import REQUEST_TRACE
from service.produce.body_threads import let_go
from service.produce.produce_answers import in_common
from service.produce.producing import RecordOutcome, outcome_of
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import Scope, header
from service.wire.content_coding import vary_of
from service.wire.errors import Problem, ProblemError, refused
from service.wire.media_type import check_encoding
from service.wire.responses import as_is
from service.wire.strict_json import BodyError
from service.wire.trace_context import trace_context_of

T = TypeVar("T")

_ANY: Final = "*"
_NO_CONTENT: Final = 204


class Publishing:
    """The handlers of the publish routes."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._clock = sidecar.producer.clock
        self._producing = sidecar.producing
        self._admission = sidecar.admission
        self._limits = sidecar.limits
        self._body_threads = sidecar.body_threads
        self._metrics = sidecar.http
        self._failed = sidecar.failed
        self._app_id = app_id(sidecar.settings)
        self._pubsubs = frozenset(sidecar.settings.dapr_pubsub_names)

    async def publish(self, request: Request, pubsub: str, topic: str) -> Response:
        """One event. Raises ProblemError where it was not acknowledged."""
        with self._metrics.produce(request.scope) as timed:
            target = self._target(request, pubsub, topic)
            content_type = _content_type(request.scope)

            def entry(body: bytes) -> list[Entry]:
                if is_media_type(content_type, JSON, CLOUD_EVENT):
                    self._check_text(body, target)
                return [Entry("", "", body, content_type, {})]

            outcomes = await self._deliver(request, target, entry, lambda _, outcomes: outcomes[0])
            if isinstance(outcomes, Problem):
                raise ProblemError(self._problem(outcomes, target))
            timed.outcome = outcome_of((outcomes,))
            return Response(status_code=_NO_CONTENT)

    async def publish_bulk(self, request: Request, pubsub: str, topic: str) -> Response:
        """Publishes many events. Raises ProblemError if none of them was accepted."""
        with self._metrics.produce(request.scope) as timed:
            target = self._target(request, pubsub, topic)

            def entries_of(body: bytes) -> Iterable[Entry]:
                return parse_entries(body, pubsub, topic, self._limits)

            timed.outcome, answer, problem = await self._deliver(request, target, entries_of, _answer_of_bulk)
            if problem is not None:
                route = request.scope["route"].path
                self._failed.add(request.scope, route, topic, self._problem(problem, target))
            return answer

    def _check_text(self, body: bytes, target: Target) -> None:
        """Raises Dapr's 413 for JSON too long for any record."""
        try:
            self._limits.check_text(body)
        except BodyError as e:
            raise target.fault(errors.TOO_MUCH, str(e)) from e

    # -- parsing ---------------------------------------------------------------------------------------------

    def _target(self, request: Request, pubsub: str, topic: str) -> Target:
        """Raises ProblemError if the pubsub, topic or metadata is invalid."""
        if NO_CHARACTER in pubsub:
            raise errors.fault(errors.PUBSUB_NOT_FOUND, "the pubsub's name in the path is not UTF-8")
        if _ANY not in self._pubsubs and pubsub not in self._pubsubs:
            known = ", ".join(sorted(self._pubsubs))
            message = f"pubsub {pubsub} is not found; there are: {known} (dapr_pubsub_names)"
            raise errors.fault(errors.PUBSUB_NOT_FOUND, message, pubsub=pubsub)
        if not topic:
            raise errors.fault(errors.TOPIC_EMPTY, f"topic is empty in pubsub {pubsub}", pubsub=pubsub)
        try:
            metadata = metadata_of_query(request.query_params.multi_items())
            asked = understand(metadata)
        except ValueError as e:
            message = f"failed deserializing metadata. Error: {e}"
            raise errors.fault(errors.METADATA, message, pubsub=pubsub, topic=topic) from e
        return Target(pubsub, topic, metadata, asked, _trace(request.scope))

    # -- delivering ------------------------------------------------------------------------------------------

    async def _deliver(
        self,
        request: Request,
        target: Target,
        entries_of: Callable[[bytes], Iterable[Entry]],
        spell: Callable[[Sequence[Entry], Sequence[RecordOutcome]], T],
    ) -> T:
        """Delivers the body's entries; returns `spell` of the entries and their outcomes."""
        since_ms = self._clock.now_ms()
        scope, caller = request.scope, caller_of(request.scope)
        try:
            self._producing.check(target.topic, caller)
            check_encoding(header(scope, b"content-encoding"))
            with self._admission.acquire(announced_bytes(scope), caller) as permit:
                body = await read_body(
                    request.scope, request.receive, permit, self._producing.times.timeout_ms
                )
                _, max_bytes = self._admission.limits
                making = EventRecords(target, self._app_id, self._clock.wall_ms(), max_bytes)

                def understood(body: bytes) -> tuple[list[Entry], list[ProducerRecord]]:
                    entries: list[Entry] = []

                    def noted() -> Iterator[Entry]:
                        for entry in entries_of(body):
                            entries.append(entry._replace(event=b"", metadata={}))  # the answer needs the ids
                            yield entry

                    return entries, list(making.of(noted()))

                entries, records = await self._body_threads.read(understood, body)
                del body
                if not records:
                    return spell((), ())
                permit.grow_to(making.bytes)
                partitions = [record.partition for record in records if record.partition is not None]
                times = self._producing.dialect_times(
                    target.topic, max(partitions, default=None), since_ms=since_ms
                )
                result = await self._producing.deliver(
                    target.topic,
                    records,
                    times,
                    since_ms=since_ms,
                    permit=permit,
                    receive=request.receive,
                    in_envelopes=True,
                )
        except ProblemError as e:
            raise ProblemError(self._problem(replace(e.problem, written="no"), target)) from e
        return await self._producing.answered(records, result, lambda outcomes: spell(entries, outcomes))

    def _problem(self, problem: Problem, target: Target) -> Problem:
        return errors.publish_problem(problem, target.pubsub, target.topic, self._app_id)


def _answer_of_bulk(
    entries: Sequence[Entry], outcomes: Sequence[RecordOutcome]
) -> tuple[str, Response, Problem | None]:
    """Returns the outcome for metrics, the answer, and the failed entries' problem. Releases the entries."""
    failed = [
        (entry, problem)
        for entry, problem in zip(entries, outcomes, strict=True)
        if isinstance(problem, Problem)
    ]
    problem = in_common([one for _, one in failed], ()) if failed else None
    answer = Response(status_code=_NO_CONTENT) if problem is None else _of_failed(failed, problem)
    let_go(failed)
    let_go(entries)
    return outcome_of(outcomes), answer, problem


def _of_failed(failed: Sequence[tuple[Entry, Problem]], common: Problem) -> Response:
    """Returns the entries that failed, with the headers of their common problem, such as Retry-After."""
    items = []
    for entry, problem in failed:
        # Dapr uses entryId; a caller with another spelling gets that too.
        item = {"entryId": entry.entry_id, entry.id_name: entry.entry_id, "error": problem.detail}
        items.append(item)
    body = msgspec.json.encode({"failedEntries": items, "errorCode": errors.PUBLISH.name})
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    return as_is(errors.PUBLISH.status, [*head, *vary_of(len(body)), *common.all_headers()], body)


def _content_type(scope: Scope) -> str:
    """Returns the request's content type, or Dapr's default. Raises ProblemError (400)."""
    try:
        return (header(scope, b"content-type") or b"").decode("ascii") or DEFAULT_CONTENT_TYPE
    except UnicodeDecodeError as e:
        raise refused(400, "Content-Type must be ASCII", place="content-type") from e


def _trace(scope: Scope) -> Trace:
    """Returns the context of the span that serves the request, if any; else that of its headers."""
    trace = REQUEST_TRACE.get()
    context = trace_context_of(scope) if trace is None else trace.context
    return Trace() if context is None else Trace(context.parent.decode(), context.state.decode())
