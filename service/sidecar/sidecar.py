"""Builds and connects the parts of one running app.

`process/`, and the handlers of `native/` and `dialects/`, receive a Sidecar, and take what they need from it.
Nothing here is global, so two apps in one process share nothing. Event loop only, except `drain`, which the
admin thread reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from client_core import ProducerConfig
from service.admission.admission_control import AdmissionControl, RetryAfter
from service.admission.drain import Drain
from service.admission.failed_requests import FailedRequests
from service.base.producer_protocol import Producer
from service.base.settings import Settings
from service.lookup.ages import Ages
from service.lookup.listing import Listing
from service.lookup.lookup_table import LookupTable
from service.lookup.lookups import Lookups
from service.lookup.offsets import OffsetsOfPartitions
from service.lookup.topic_configs import ConfigsOfTopics
from service.lookup.unknown_topics import UnknownTopics
from service.observe.http_metrics import HttpMetrics
from service.observe.slowness.collector import Slowness
from service.produce.body_threads import BodyThreads
from service.produce.idempotency import IdempotencyKeys, KeyLimits
from service.produce.producing import Producing
from service.produce.record_stream import StreamLimits, Streams
from service.watch.feed import ChangeFeed
from service.watch.notice import SnapshotNotice
from service.wire.json_parts import BodyLimits
from service.wire.long_answers import Slices

if TYPE_CHECKING:
    from service.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The parts of one running app."""

    settings: Settings
    config: ProducerConfig
    limits: BodyLimits
    body_threads: BodyThreads
    producer: Producer
    boot: str
    slowness: Slowness
    slices: Slices
    table: LookupTable
    lookups: Lookups
    listing: Listing
    configs: ConfigsOfTopics
    offsets: OffsetsOfPartitions
    admission: AdmissionControl
    unknown: UnknownTopics
    producing: Producing
    streams: Streams
    keys: IdempotencyKeys
    http: HttpMetrics
    drain: Drain
    retry_after: RetryAfter
    failed: FailedRequests
    feed: ChangeFeed
    spool: Spool | None


def build_sidecar(
    settings: Settings,
    producer: Producer,
    boot: str,
    slowness: Slowness,
    notice: SnapshotNotice,
    spool: Spool | None,
) -> Sidecar:
    """Builds the parts for a producer. Its event sinks must include `slowness` and `notice`."""
    config, drain = settings.producer_config(), Drain()
    admission = AdmissionControl(
        producer.clock,
        settings.max_waiting_requests,
        settings.max_waiting_bytes,
        shared_bytes=config.buffer_memory,
        drain=drain,
    )
    unknown = UnknownTopics(
        settings.internal.unknown_topic_memory_ms, settings.internal.unknown_topics_per_second
    )
    http = HttpMetrics(exemplars=settings.exemplars)
    slices, failed = Slices(), FailedRequests(producer.clock)
    retry_after = RetryAfter(producer.clock, admission, drain, config, settings)
    ages = Ages(
        producer,
        revalidate_after_ms=settings.lookup_revalidate_after_ms,
        max_stale_ms=settings.lookup_max_stale_ms,
        wait_ms=settings.internal.lookup_refresh_wait_ms,
    )
    lookups = Lookups(
        producer,
        config,
        boot=boot,
        lookup_wait_ms=settings.internal.lookup_wait_ms,
        admission=admission,
        unknown=unknown,
        ages=ages,
    )
    feed = ChangeFeed(producer, lookups, drain, settings, boot, notice)
    body_threads = BodyThreads(settings.internal.body_threads)
    producing = Producing(producer, config, settings, unknown, retry_after, body_threads)
    return Sidecar(
        settings=settings,
        config=config,
        limits=BodyLimits.of(settings.internal.max_records_per_request, config.max_request_size),
        body_threads=body_threads,
        producer=producer,
        boot=boot,
        slowness=slowness,
        slices=slices,
        table=LookupTable(producer, boot, slices, ages),
        lookups=lookups,
        listing=Listing(
            producer,
            max_age_ms=settings.internal.listing_max_age_ms,
            wait_ms=settings.internal.lookup_wait_ms,
            slices=slices,
        ),
        configs=ConfigsOfTopics(
            producer,
            max_age_ms=settings.internal.topic_configs_max_age_ms,
            wait_ms=settings.internal.topic_configs_wait_ms,
        ),
        offsets=OffsetsOfPartitions(producer, lookups, admission, wait_ms=settings.internal.lookup_wait_ms),
        admission=admission,
        unknown=unknown,
        producing=producing,
        streams=Streams(producer, producing, admission, drain, http, limits=StreamLimits.of(settings)),
        keys=IdempotencyKeys(producer.clock, _key_limits(settings, config), http.keys_forgotten_early),
        http=http,
        drain=drain,
        retry_after=retry_after,
        failed=failed,
        feed=feed,
        spool=spool,
    )


def _key_limits(settings: Settings, config: ProducerConfig) -> KeyLimits:
    """Returns the limits. A key is kept longer than any record of its request can be in flight."""
    hold_ms = max(settings.idempotency_memory_ms, 2 * config.delivery_timeout_ms)
    return KeyLimits(settings.idempotency_max_bytes, settings.internal.idempotency_max_keys, hold_ms)
