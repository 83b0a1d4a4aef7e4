"""Reads advice at the start, and applies it when the cluster is known.

    read (constructor) ── cluster known ──> topics looked up, refresh interval lowered
                                             └── each refresh: existing topics are marked as used

Nothing waits for advice, and nothing fails because of it. If it can't be used, there is one log line and
`pilotfish_advice_info`, and the sidecar continues without it. The cluster is not known before the first
metadata, and advice for another cluster is not used.

An advised topic is not a topic of `warm_topics`, which is requested until the sidecar ends, even if it does
not exist. It is looked up once, which does not create it, and dropped if it does not exist. After that, it is
marked as used at each refresh, so it stays known. A deleted one is forgotten after metadata.max.idle.ms.

`emit` runs on the client's I/O thread, `collect` on the admin thread, all else on the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from client_core import MetadataRefreshed, Result
from service.base.producer_protocol import Producer
from service.base.watched_file import FileFaultError, FileTooLargeError, read_file
from service.process.advice_document import MAX_BYTES, Advice, AdviceIgnoredError, Outcome, parse_advice
from service.watch.notice import Post, SnapshotNotice
from service.wire.freshness import rfc3339

_log: Final = logging.getLogger(__name__)

#: The shortest refresh interval, however often leaders move, to limit the load of many topics.
SHORTEST_MAX_AGE_MS: Final = 10_000

#: How long advised topics are looked up, before it is logged how many exist. Nothing waits for it.
_LOOK_UP_MS: Final = 30_000


class AdviceAtStart(Collector):
    """The advice of one file for one service; none if no file is configured."""

    def __init__(self, path: str, service: str) -> None:
        """Reads the file. Never raises."""
        self._path = path
        self._by_cluster: Mapping[str, Advice] = {}
        self._in_force: Advice | None = None
        self._producer: Producer | None = None
        self._notice = SnapshotNotice({MetadataRefreshed})
        #: Posts a check to the event loop after a refresh. The client calls it directly.
        self.emit: Final = self._notice.emit
        #: Stops posting to the event loop.
        self.end: Final = self._notice.end
        #: None if no advice is configured.
        self.outcome: Outcome | None = None
        #: How many advised topics existed when metadata was last refreshed.
        self.topics_kept = 0
        if path:
            self._read(service)

    def _read(self, service: str) -> None:
        try:
            self._by_cluster = parse_advice(read_file(Path(self._path), MAX_BYTES), service)
            self.outcome = Outcome.WAITING
        except FileTooLargeError as fault:
            self._ignore(Outcome.TOO_LARGE, str(fault))
        except FileFaultError as fault:
            self._ignore(Outcome.UNREADABLE, str(fault))
        except AdviceIgnoredError as ignored:
            self._ignore(ignored.outcome, f"{self._path}: {ignored}")

    def _ignore(self, outcome: Outcome, reason: str) -> None:
        self.outcome = outcome
        self._by_cluster = {}
        _log.warning("advice: %s; the sidecar continues without it", reason)

    # -- the client's events ---------------------------------------------------------------------------------

    def wants(self, kind: type) -> bool:
        """See `service.process.app.Subscriber`."""
        return self.outcome is Outcome.WAITING and self._notice.wants(kind)

    # -- the event loop --------------------------------------------------------------------------------------

    def begin(self, producer: Producer, post: Post) -> None:
        """Applies the advice to this producer from now on; its events must come to `emit`."""
        self._producer = producer
        self._notice.begin(post, self._on_refreshed)
        if producer.status().metadata.age_ms is not None:
            self._on_refreshed()

    def _on_refreshed(self) -> None:
        if self._producer is not None and self.outcome is Outcome.WAITING:
            try:
                self._put_in_force(self._producer)
            except AdviceIgnoredError as ignored:
                self._ignore(ignored.outcome, f"{self._path}: {ignored}")
        self._keep_topics()

    def _put_in_force(self, producer: Producer) -> None:
        advice = self._of_cluster(producer.cache.cluster_id)
        advice.check_age(producer.clock.wall_ms())
        self._in_force = advice
        self.outcome = Outcome.USED
        producer.lower_metadata_max_age(max(advice.refresh_max_age_ms, SHORTEST_MAX_AGE_MS))
        if not advice.warm_topics:
            self._report(advice)
            return
        deadline_ms = producer.clock.now_ms() + _LOOK_UP_MS
        producer.request_topics(
            advice.warm_topics, deadline_ms=deadline_ms, create=False, done=self._looked_up
        )

    def _of_cluster(self, cluster_id: str | None) -> Advice:
        advice = None if cluster_id is None else self._by_cluster.get(cluster_id)
        if advice is None:
            raise AdviceIgnoredError(
                Outcome.OTHER_CLUSTER,
                f"advice: is for cluster {', '.join(sorted(self._by_cluster))}, but this is {cluster_id}",
            )
        return advice

    def _looked_up(self, _: Result) -> None:
        self._keep_topics()
        if self._in_force is not None:
            self._report(self._in_force)

    def _keep_topics(self) -> None:
        """Marks the advised topics that exist as used."""
        if self._in_force is None or self._producer is None:
            return
        topics = self._producer.cache.topics
        tables = [topics[name] for name in self._in_force.warm_topics if name in topics]
        for table in tables:
            table.use.touched = True
        self.topics_kept = len(tables)

    def _report(self, advice: Advice) -> None:
        assert self._producer is not None, "advice is in use for a producer"
        _log.info(
            "advice: %s: %s, computed at %s: %d of %d topics exist and are kept known; metadata is refreshed "
            "every %d ms",
            self._path,
            advice.place,
            rfc3339(advice.computed_ms),
            self.topics_kept,
            len(advice.warm_topics),
            self._producer.status().metadata.max_age_ms,
        )

    # -- the admin thread ------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """Yields the gauge for Prometheus."""
        info = GaugeMetricFamily("pilotfish_advice_info", "The outcome of the advice.", labels=("outcome",))
        if self.outcome is not None:
            info.add_metric((self.outcome.value,), 1)
        yield info
