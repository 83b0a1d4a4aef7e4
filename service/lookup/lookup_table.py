"""Keeps answers of metadata look-ups ready as bytes: path → Entry.

Each API declares next to its routes how their answers are built (`serve`). The route's own template names the
parameters. The routes answer with the same entries, so there is one way to make each body.

An entry is built when its path is first requested, and kept while its content is unchanged. The content is
the topic's table and the brokers' addresses. Successive snapshots share a topic's table object until its
bytes change, or its overlay of new leaders. Entries about no topic, such as the cluster's, have no table and
are built again. A new snapshot or a new second replaces the stamp, which makes all entries stale at once. The
next look-up of an entry compares two identities and renews its headers. So a new snapshot costs nothing,
however many entries there are, and a look-up costs one dictionary access and one comparison. Freshness
headers are encoded once a second per entry, not per request. Ages are compared with their bounds (`ages.py`)
just as rarely: the stamp is also replaced when the first of the renewed entries reaches a bound.

Keys are raw targets, with `?partition=3` for a leader. Bodies with links are kept for each address that
callers use (`base`). Other queries, encoded names and unknown topics go to FastAPI's routes, which use these
entries too. So does a topic with more than LONG_PARTITIONS partitions: its answer is built in slices
(`topic`), and kept like the others. Event loop only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from client_core import MetadataCache, Node, RefreshTime, TopicTable, partition_for_key
from service.base.producer_protocol import Producer
from service.lookup.ages import Ages
from service.lookup.answers import cluster_body, leader_body, partition_body, topic_body, topic_pieces
from service.wire.asgi import HeaderPairs, header_lines
from service.wire.content_coding import vary_of
from service.wire.freshness import CACHE_CONTROL, etag_of, freshness_headers, version_text
from service.wire.long_answers import LongBody, Slices
from service.wire.media_type import JSON

#: The prefix of every path about one topic; the topic's name is the next segment.
TOPICS: Final = b"/v1/topics/"
_LEADER: Final = b"/leader"
_PLAIN: Final = re.compile("0|[1-9][0-9]{0,9}")
_TOPIC_ROUTE: Final = "/v1/topics/{topic}"
_PARTITION_ROUTE: Final = "/v1/topics/{topic}/partitions/{partition}"
_LEADER_ROUTE: Final = "/v1/topics/{topic}/leader"

#: Limits of the table, which is cleared when it exceeds one. Ten thousand partitions take about 3 MB.
MAX_ENTRIES: Final = 20_000
MAX_BODY_BYTES: Final = 32 * 1024 * 1024

#: Answers for more partitions are built in slices; a partition takes about 9 us.
LONG_PARTITIONS: Final = 500

#: Unused entries are dropped after this time, and with them the topic tables that they hold.
IDLE_S: Final = 60


class _Use(Protocol):
    """Marks a topic as used. Setting `touched` restarts its idle expiry."""

    touched: bool


class _NoUse:
    """The mark of an answer that is about no topic."""

    touched = False


class Asked(NamedTuple):
    """What an answer is built from. `base` is what its links begin with; empty if it has none."""

    cache: MetadataCache
    base: str


class Built(NamedTuple):
    """A body, and the topic that it is about, if it is about one."""

    body: bytes
    topic: TopicTable | None = None


#: Encodes one partition of a topic; None if it does not exist.
_MakePartition = Callable[[TopicTable, int, Mapping[int, Node]], bytes | None]

#: Builds the answer of a route from the parameters in its path, by name. None: the route must answer.
Build = Callable[..., Built | None]


class Form(NamedTuple):
    """What the answers of one API have in common."""

    media_type: bytes = JSON
    #: Bodies have links that begin with the caller's own scheme and host.
    has_links: bool = False
    #: Returns whether a caller with this Accept header is answered; None: the header is not read.
    accepts: Callable[[bytes], bool] | None = None


NATIVE: Final = Form()


class _Route(NamedTuple):
    """A route's template in parts, with None for each parameter; `query` is its only query parameter."""

    template: str
    parts: tuple[str | None, ...]
    names: tuple[str, ...]
    query: str
    build: Build
    form: Form

    def parameters(self, parts: list[str], query: str) -> dict[str, str] | None:
        """Returns the parameters of a path, if it is one of this route."""
        found = []
        for own, part in zip(self.parts, parts, strict=True):
            if own is None:
                found.append(part)
            elif own != part:
                return None
        name, _, value = query.partition("=")
        if name != self.query:
            return None
        return dict(zip(self.names, [*found, value] if self.query else found, strict=True))


def _route_of(template: str, build: Build, form: Form) -> _Route:
    path, _, query = template.partition("?")
    parts = tuple(None if part.startswith("{") else part for part in path.split("/"))
    names = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    return _Route(path, parts, (*names, query) if query else tuple(names), query, build, form)


class Entry:
    """One prepared answer. `head` and `head_304` are the current `headers` and `headers_304`, encoded.

    `needs_route`: it can't be sent at once, because it is long, or so old that it must be refreshed first.
    """

    __slots__ = (
        "_fixed",
        "body",
        "chunks",
        "etag",
        "form",
        "head",
        "head_304",
        "headers",
        "headers_304",
        "is_long",
        "length",
        "needs_route",
        "nodes",
        "route",
        "stamp",
        "topic",
        "use",
        "used_s",
    )

    #: Set by `renew`.
    headers: HeaderPairs
    headers_304: HeaderPairs
    head: bytes
    head_304: bytes
    stamp: object
    used_s: int

    def __init__(
        self,
        route: str,
        body: bytes | LongBody,
        topic: TopicTable | None,
        nodes: Mapping[int, Node],
        form: Form = NATIVE,
    ) -> None:
        self.route = route
        self.form = form
        if isinstance(body, LongBody):
            # `body` is only for answers in one piece: users of it check `is_long` first.
            self.chunks, self.length, self.etag = body
            self.is_long, self.body = True, b""
        else:
            self.chunks, self.length, self.etag = (body,), len(body), etag_of(body)
            self.is_long, self.body = False, body
        self.needs_route = self.is_long
        self.topic = topic
        self.nodes = nodes
        self.use: _Use = _NoUse() if topic is None else topic.use
        length = (b"content-length", b"%d" % self.length)
        self._fixed = [(b"content-type", form.media_type), length]

    def renew(self, stamp: object, used_s: int, freshness: HeaderPairs) -> None:
        """Makes the entry current, with new freshness headers."""
        self.headers_304 = [(b"etag", self.etag), CACHE_CONTROL, *vary_of(self.length), *freshness]
        self.headers = self._fixed + self.headers_304
        lines = header_lines(self.headers_304) + b"\r\n"
        self.head, self.head_304 = header_lines(self._fixed) + lines, lines
        self.used_s = used_s
        self.stamp = stamp


class _Leaders:
    """One topic's leaders as JSON by partition, for requests that ask for several at once."""

    __slots__ = ("bodies", "needs_route", "nodes", "stamp", "topic")

    #: As of the last check.
    stamp: object
    needs_route: bool

    def __init__(self, topic: TopicTable, nodes: Mapping[int, Node]) -> None:
        self.topic = topic
        self.nodes = nodes
        self.bodies: dict[int, bytes] = {}


class _Building(NamedTuple):
    """A long answer that is being built, and what from."""

    topic: TopicTable
    nodes: Mapping[int, Node]
    task: asyncio.Task[Entry]


class LookupTable:
    """The entries for the producer's current snapshot."""

    def __init__(
        self, producer: Producer, boot: str, slices: Slices | None = None, ages: Ages | None = None
    ) -> None:
        """Without `ages`, answers may have any age."""
        self._slices = Slices() if slices is None else slices
        self._ages = Ages(producer) if ages is None else ages
        self._building: dict[str, _Building] = {}
        self._producer = producer
        self._now_ms = producer.clock.now_ms
        self._boot = boot
        #: The snapshot from which the last found answer was made.
        self.cache: MetadataCache = producer.cache
        self._nodes: Mapping[int, Node] = MappingProxyType({})
        self._entries: dict[bytes, Entry] = {}
        self._leaders: dict[str, _Leaders]
        self._drop_leaders()
        self._body_bytes = 0
        #: When the stamp must be replaced: at the end of the second, or when an age reaches a bound.
        self._until_ms: int
        self._swept_s = 0
        #: By the number of their parts.
        self._routes: dict[int, list[_Route]] = {}
        #: The prefixes of targets whose answers have links.
        self.linked: tuple[bytes, ...] = ()
        self._cluster_id = self.cache.cluster_id
        self._take(self.cache)
        self._turn(self._now_ms())
        self.serve(
            {
                "/v1/cluster": _cluster,
                _TOPIC_ROUTE: _topic,
                _PARTITION_ROUTE: _partition,
                f"{_LEADER_ROUTE}?partition": _leader,
            }
        )

    def serve(self, builds: Mapping[str, Build], form: Form = NATIVE) -> None:
        """Adds routes by their templates; `…?name` has a query parameter, which is passed to `Build` too."""
        for template, build in builds.items():
            route = _route_of(template, build, form)
            self._routes.setdefault(len(route.parts), []).append(route)
            if form.has_links:
                self.linked = (*self.linked, template.partition("{")[0].encode())

    @property
    def templates(self) -> set[str]:
        """The routes whose answers are kept here."""
        return {route.template for routes in self._routes.values() for route in routes}

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, target: bytes, base: bytes = b"") -> Entry | None:
        """Returns the entry for a raw path and query; None if a route must answer. Marks the topic used."""
        cache, now_ms = self._producer.cache, self._now_ms()
        if cache is not self.cache or now_ms >= self._until_ms:
            self._keep_up(cache, now_ms)
        entry = self._entries.get(base + target)
        if entry is None or entry.stamp is not self._stamp:
            entry = self._current(target, base, entry, now_ms)
            if entry is None:
                return None
        entry.use.touched = True
        return entry

    async def topic(self, name: str) -> Entry | None:
        """Returns the entry for a topic with any number of partitions; None if the topic is unknown.

        A long answer is built once for all callers of the same table. If a newer table arrives meanwhile, its
        freshness headers are those of the snapshot from which it is built.
        """
        key = TOPICS + name.encode()
        entry = self.find(key)
        if entry is not None:
            return entry
        topic, nodes = self.cache.topics.get(name), self._nodes
        if topic is None:
            return None
        building = self._building.get(name)
        if building is None or building.topic is not topic or building.nodes is not nodes:
            # Freshness is read now, because the task begins in a later turn.
            said = self._stamp, self._second, self.freshness(self.cache, self.cache.refresh_time(name))
            task = asyncio.get_running_loop().create_task(self._built(topic, nodes, said))
            building = self._building[name] = _Building(topic, nodes, task)
            task.add_done_callback(lambda _: self._end_building(name, task))
        entry = await asyncio.shield(building.task)  # the first caller may leave
        # A caller that came later may have demanded a later refresh, which did not change the table.
        return self.find(key) or entry

    def _end_building(self, name: str, task: asyncio.Task[Entry]) -> None:
        building = self._building.get(name)
        if building is not None and building.task is task:
            del self._building[name]

    async def _built(
        self, topic: TopicTable, nodes: Mapping[int, Node], said: tuple[object, int, HeaderPairs]
    ) -> Entry:
        entry = Entry(_TOPIC_ROUTE, await self._slices.body(topic_pieces(topic, nodes)), topic, nodes)
        entry.renew(*said)
        if self._holds(entry):
            self._keep(TOPICS + topic.name.encode(), entry)
        return entry

    def find_by_key(self, path: bytes, key: bytes) -> Entry | None:
        """Returns the entry for `/v1/topics/{topic}/leader?key=…`: that of the key's partition."""
        topic = self._producer.cache.topics.get(path[len(TOPICS) : -len(_LEADER)].decode("latin-1"))
        if topic is None or not topic.partition_count:
            return None
        return self.find(b"%s?partition=%d" % (path, partition_for_key(key, topic.partition_count)))

    def leaders(self, wanted: Iterable[tuple[str, int]]) -> list[bytes] | None:
        """Returns the leaders of partitions as JSON, in order; None if one is unknown, or must be refreshed.

        Marks the topics used.
        """
        cache, now_ms = self._producer.cache, self._now_ms()
        if cache is not self.cache or now_ms >= self._until_ms:
            self._keep_up(cache, now_ms)
        found: list[bytes] = []
        for name, number in wanted:
            leaders = self._leaders.get(name)
            if leaders is None or leaders.stamp is not self._stamp:
                leaders = self._leaders_of(name, now_ms)
                if leaders is None:
                    return None
            if leaders.needs_route:
                return None
            body = leaders.bodies.get(number)
            if body is None:
                body = leader_body(leaders.topic, number, leaders.nodes)
                if body is None:
                    return None
                leaders.bodies[number] = body
                self._leader_count += 1
            leaders.topic.use.touched = True
            found.append(body)
        return found

    def _leaders_of(self, name: str, now_ms: int) -> _Leaders | None:
        """Returns a topic's kept leaders, brought up to date; None for an unknown topic."""
        if self._leader_count > MAX_ENTRIES:
            self._drop_leaders()
        topic, leaders = self.cache.topics.get(name), self._leaders.get(name)
        if topic is None:
            return None
        if leaders is None or leaders.topic is not topic or leaders.nodes is not self._nodes:
            leaders = self._leaders[name] = _Leaders(topic, self._nodes)
        leaders.stamp = self._stamp
        due = self._ages.look(name, now_ms)
        self._until_ms = min(self._until_ms, due.at_ms)
        leaders.needs_route = due.before
        return leaders

    def freshness(self, cache: MetadataCache, time: RefreshTime | None) -> HeaderPairs:
        """Returns the freshness headers of an answer that is made from this snapshot, and as old as `time`.

        `time` None: the age is unknown.
        """
        version = version_text(self._boot, cache.update_version).encode()
        return freshness_headers(version, time, self._now_ms())

    # -- keeping current -------------------------------------------------------------------------------------

    def _keep_up(self, cache: MetadataCache, now_ms: int) -> None:
        """Uses this snapshot and this second, from now on."""
        if cache is not self.cache:
            self._take(cache)
        if now_ms >= self._until_ms:
            self._turn(now_ms)

    def _drop_leaders(self) -> None:
        self._leaders, self._leader_count = {}, 0

    def _take(self, cache: MetadataCache) -> None:
        """Uses this snapshot from now on. Entries stay valid while `_nodes` is the same object."""
        self.cache = cache
        if cache.nodes_by_id != self._nodes:
            self._nodes = cache.nodes_by_id
        if cache.cluster_id != self._cluster_id:
            self._cluster_id, self._entries, self._body_bytes = cache.cluster_id, {}, 0
        self._stamp = object()

    def _turn(self, now_ms: int) -> None:
        """Begins a new second, or replaces the stamp within one because an age has reached its bound.

        Drops idle entries once a minute.
        """
        second = self._second = now_ms // 1000
        self._until_ms = (second + 1) * 1000
        self._stamp = object()
        if second - self._swept_s >= IDLE_S:
            self._swept_s = second
            self._drop_leaders()
            self._entries = {key: e for key, e in self._entries.items() if second - e.used_s < IDLE_S}
            self._body_bytes = sum(entry.length for entry in self._entries.values())

    def _current(self, target: bytes, base: bytes, entry: Entry | None, now_ms: int) -> Entry | None:
        """Returns the old entry, renewed, if its content is unchanged; else a new one, or None."""
        key = base + target
        if entry is not None and not self._holds(entry):
            del self._entries[key]
            self._body_bytes -= entry.length
            entry = None
        is_new = entry is None
        if entry is None:
            entry = self._build(target, base)
            if entry is None:
                return None
        topic, cache = None if entry.topic is None else entry.topic.name, self.cache
        due = self._ages.look(topic, now_ms)
        self._until_ms = min(self._until_ms, due.at_ms)
        entry.needs_route = entry.is_long or due.before
        time = cache.answered if topic is None else cache.refresh_time(topic)
        entry.renew(self._stamp, self._second, self.freshness(cache, time))
        if is_new:  # last, so that an exception leaves no half-made entry
            self._keep(key, entry)
        return entry

    def _holds(self, entry: Entry) -> bool:
        if entry.nodes is not self._nodes:
            return False
        # An answer about no topic has no table to compare; it is cheap to rebuild.
        return entry.topic is not None and self.cache.topics.get(entry.topic.name) is entry.topic

    def _keep(self, key: bytes, entry: Entry) -> None:
        self._body_bytes += entry.length
        if len(self._entries) >= MAX_ENTRIES or self._body_bytes > MAX_BODY_BYTES:
            self._entries = {}
            self._body_bytes = entry.length
        self._entries[key] = entry

    # -- building --------------------------------------------------------------------------------------------

    def _build(self, target: bytes, base: bytes) -> Entry | None:
        path, mark, query = target.decode("latin-1").partition("?")
        parts = path.split("/")
        if not (mark and not query):
            for route in self._routes.get(len(parts), ()):
                parameters = route.parameters(parts, query)
                if parameters is not None and route.form.has_links == bool(base):
                    built = route.build(Asked(self.cache, base.decode("latin-1")), **parameters)
                    if built is None:
                        return None
                    return Entry(route.template, built.body, built.topic, self._nodes, route.form)
        return None


# -- the native answers --------------------------------------------------------------------------------------


def _cluster(asked: Asked) -> Built | None:
    return None if asked.cache.is_bootstrap else Built(cluster_body(asked.cache))


def _topic(asked: Asked, topic: str) -> Built | None:
    table = short_topic(asked, topic)
    return None if table is None else Built(topic_body(table, asked.cache.nodes_by_id), table)


def _partition(asked: Asked, topic: str, partition: str) -> Built | None:
    return of_partition(asked, topic, partition, partition_body)


def _leader(asked: Asked, topic: str, partition: str) -> Built | None:
    return of_partition(asked, topic, partition, leader_body)


def short_topic(asked: Asked, topic: str) -> TopicTable | None:
    """Returns a topic whose partitions may be listed at once; None if it is unknown, or long."""
    table = asked.cache.topics.get(topic)
    return None if table is None or table.partition_count > LONG_PARTITIONS else table


def of_partition(
    asked: Asked,
    topic: str,
    partition: str,
    make: _MakePartition,
) -> Built | None:
    """Returns the body that `make` returns for a partition of a known topic."""
    table, number = asked.cache.topics.get(topic), plain_number(partition)
    if table is None or number is None:
        return None
    body = make(table, number, asked.cache.nodes_by_id)
    return None if body is None else Built(body, table)


def plain_number(digits: str) -> int | None:
    """Parses a number in its canonical form only, so that each answer has one key."""
    return int(digits) if _PLAIN.fullmatch(digits) else None
