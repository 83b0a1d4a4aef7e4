"""A sidecar that starts with advice: the used and ignored parts, its log lines, and valid documents."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.metadata_request import MetadataRequest
from client_core.testing import FakeCluster
from service.base.settings import Settings
from service.base.settings_sources import SettingsError, load_settings
from service.process.admin import make_registry
from service.process.advice_at_start import SHORTEST_MAX_AGE_MS
from service.process.advice_document import (
    AHEAD_MS,
    MAX_BYTES,
    MAX_TOPICS,
    MAX_TTL_MS,
    Advice,
    AdviceIgnoredError,
    Outcome,
    parse_advice,
)
from service.process.app import App
from tests.service.process.advice_documents import COMPUTED_AT, HOUR_MS, document, entry
from tests.support.coroutine_tests import run, until
from tests.support.http_app import NativeApp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path


def metrics(app: App) -> list[str]:
    """The lines about advice, about the interval, and how many topics advice keeps known."""
    text = generate_latest(make_registry(app)).decode()
    names = ("pilotfish_advice", "pilotfish_metadata_max_age")
    lines = [line.removeprefix("pilotfish_") for line in text.splitlines() if line.startswith(names)]
    return [*lines, f"topics kept: {app.advice.topics_kept}"]


class Started:
    """An app with advice in a file, over a fake producer whose events it gets."""

    def __init__(self, folder: Path, content: bytes | None, service: str = "billing", **kafka: str) -> None:
        self.path = folder / "advice.json"
        if content is not None:
            self.path.write_bytes(content)
        self.web = NativeApp(advice=str(self.path), service_name=service, kafka=kafka)
        self.producer = self.web.producer
        self.producer.sink = self.web.app.completions
        self.producer.max_age_ms = self.web.settings.producer_config().metadata_max_age_ms

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def within() -> None:
            async with self.web.app.api.router.lifespan_context(self.web.app.api):
                await scenario()

        run(within())

    def refresh(self, **topics: int) -> None:
        """Metadata comes, with these topics."""
        self.producer.set_topics(topics)

    async def refreshed(self) -> None:
        self.refresh()
        await turns()

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [arguments for kind, arguments in self.producer.calls if kind == "topics"]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="service.process")
    return caplog


def said_of_advice(log: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in log.messages if message.startswith("advice: ")]


async def turns() -> None:
    """Lets the loop run the callbacks that were posted to it."""
    for _ in range(5):
        await asyncio.sleep(0)


# -- in force ------------------------------------------------------------------------------------------------


def test_when_the_cluster_is_known_topics_are_looked_up_and_the_interval_is_lowered(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    started = Started(tmp_path, document())

    async def scenario() -> None:
        await turns()
        assert started.asked == []
        assert 'advice_info{outcome="waiting"} 1.0' in metrics(started.web.app)
        started.producer.on_brokers = {"orders": 3}
        started.refresh()
        await until(lambda: started.producer.waiting)
        (asked,) = started.asked
        assert (asked["names"], asked["create"], asked["settle"]) == (["orders", "refunds"], False, True)
        assert started.producer.configured == []
        started.producer.say_unknown(started.producer.waiting[0])
        await until(lambda: log.messages)

    started.run(scenario)
    assert metrics(started.web.app) == [
        "metadata_max_age_seconds 60.0",
        'advice_info{outcome="used"} 1.0',
        "topics kept: 1",
    ]
    assert log.messages == [
        f"advice: {started.path}: advice[0], computed at 2023-11-14T22:00:00.000Z: 1 of 2 topics exist "
        "and are kept known; metadata is refreshed every 60000 ms"
    ]


def test_metadata_that_came_before_the_app_began_is_as_good(tmp_path: Path) -> None:
    started = Started(tmp_path, document())
    started.refresh(orders=3, refunds=1)

    async def scenario() -> None:
        await until(lambda: started.asked)
        await turns()
        assert "topics kept: 2" in metrics(started.web.app)

    started.run(scenario)


def test_advised_topics_are_kept_known_for_as_long_as_they_are_there(tmp_path: Path) -> None:
    started = Started(tmp_path, document())

    async def scenario() -> None:
        started.refresh(orders=3, refunds=1, others=1)
        await turns()
        uses = {name: table.use for name, table in started.producer.cache.topics.items()}
        assert {name: use.touched for name, use in uses.items()} == {
            "orders": True,
            "refunds": True,
            "others": False,
        }
        for use in uses.values():
            use.touched = False
        started.refresh(orders=3, others=1)
        await turns()
        assert uses["orders"].touched
        assert "topics kept: 1" in metrics(started.web.app)
        assert len(started.asked) == 1

    started.run(scenario)


def test_the_interval_is_lowered_within_bounds_and_never_raised(tmp_path: Path) -> None:
    for advised_ms, configured_ms, in_force_ms in (
        (60_000, 300_000, 60_000),
        (1, 300_000, SHORTEST_MAX_AGE_MS),
        (10**30, 300_000, 300_000),
        (60_000, 20_000, 20_000),
        (1, 1_000, 1_000),
    ):
        advised = entry(refresh_max_age_ms=advised_ms, warm_topics=[])
        started = Started(tmp_path, document(advised), **{"metadata.max.age.ms": str(configured_ms)})
        started.run(started.refreshed)
        assert started.asked == [], advised_ms
        assert started.producer.max_age_ms == in_force_ms, advised_ms
        assert started.web.get("/v1/status").json()["metadata"]["max_age_ms"] == in_force_ms, advised_ms


# -- ignored -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "outcome", "reported"),
    [
        (None, "unreadable", "can't read {path}: No such file or directory"),
        (b"{" * 9, "broken", "{path}: the document: "),
        (b" " * (MAX_BYTES + 1), "too_large", "{path} is larger than 1048576 bytes"),
        (
            document(entry(service="search")),
            "other_service",
            "{path}: advice: there is no entry for service 'billing'",
        ),
        (
            document(entry(cluster_id="west")),
            "other_cluster",
            "{path}: advice: is for cluster west, but this is",
        ),
        (document(entry(ttl_ms=1)), "stale", "{path}: advice[0]: stale: it was computed at 2023-11-14T22:00"),
        (
            document(entry(computed_at="2031-01-01T00:00:00Z")),
            "ahead",
            "{path}: advice[0]: computed at 2031-",
        ),
    ],
)
def test_unusable_advice_is_logged_in_one_line_and_the_sidecar_goes_on(
    tmp_path: Path, log: pytest.LogCaptureFixture, content: bytes | None, outcome: str, reported: str
) -> None:
    started = Started(tmp_path, content)

    async def scenario() -> None:
        started.refresh(orders=3, refunds=1)
        started.refresh(orders=3, refunds=1)
        await turns()
        assert not any(table.use.touched for table in started.producer.cache.topics.values())

    started.run(scenario)
    assert started.asked == []
    assert metrics(started.web.app) == [
        "metadata_max_age_seconds 300.0",
        f'advice_info{{outcome="{outcome}"}} 1.0',
        "topics kept: 0",
    ]
    (line,) = log.messages
    assert line.startswith("advice: " + reported.format(path=started.path))
    assert line.endswith("; the sidecar continues without it")
    assert started.web.get("/v1/topics/orders").status_code == 200


def test_a_folder_or_a_pipe_in_the_place_of_the_file_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "advice.json").mkdir()
    assert 'advice_info{outcome="unreadable"} 1.0' in metrics(Started(tmp_path, None).web.app)


def test_without_the_setting_nothing_is_read_and_nothing_logged(log: pytest.LogCaptureFixture) -> None:
    app = NativeApp().app
    assert metrics(app) == ["metadata_max_age_seconds 300.0", "topics kept: 0"]
    assert log.messages == []


def test_advice_from_a_topic_is_refused_with_the_remedy() -> None:
    with pytest.raises(SettingsError, match=r"^advice: .*can't read advice from a topic.*--out.*'topic:x'"):
        load_settings({"advice": "topic:x"}, ("bootstrap.servers=localhost:9092",))


# -- real connections ----------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as running:
        yield running


def test_advised_topics_that_are_not_there_are_neither_created_nor_asked_for_again(
    tmp_path: Path, cluster: FakeCluster, log: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("orders", partitions=2)
    path = tmp_path / "advice.json"
    just_now = datetime.now(UTC).isoformat()
    advised = entry(cluster_id=cluster.cluster_id, computed_at=just_now, refresh_max_age_ms=30_000)
    path.write_bytes(document(advised))
    kafka = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "retry.backoff.ms": "4",
        "retry.backoff.max.ms": "16",
    }
    app = App(Settings(kafka=kafka, advice=str(path), service_name="billing"))

    producer = app.sidecar.producer

    async def scenario() -> None:
        async with app.api.router.lifespan_context(app.api):
            await until(lambda: said_of_advice(log))
            refreshed: list[object] = []
            deadline_ms = producer.clock.now_ms() + 20_000
            producer.request_update(deadline_ms=deadline_ms, done=refreshed.append)
            await until(lambda: refreshed)

    run(scenario())
    (said,) = said_of_advice(log)
    assert "1 of 2 topics exist and are kept known; metadata is refreshed every 30000 ms" in said
    assert list(cluster.topic_names()) == ["orders"]
    asked = []
    for request in cluster.requests(ApiKey.METADATA):
        assert isinstance(request.message, MetadataRequest)
        asked.append([topic.name for topic in request.message.topics or ()])
    assert asked[0] == []
    assert ["orders", "refunds"] in asked
    assert asked[-1] == ["orders"]


# -- the document --------------------------------------------------------------------------------------------


COMPUTED_MS = int(datetime.fromisoformat(COMPUTED_AT).timestamp() * 1000)


def ignored(content: bytes, service: str = "billing") -> tuple[Outcome, str]:
    with pytest.raises(AdviceIgnoredError) as reported:
        parse_advice(content, service)
    return reported.value.outcome, str(reported.value)


def test_an_entry_is_taken_for_its_service_by_its_cluster() -> None:
    content = document(
        entry(service="search", warm_topics=["a"]),
        entry(cluster_id="east", warm_topics=["b"], computed_at="2023-11-14T23:00:00.500000+01:00"),
        entry(warm_topics=["c", "d", "c"], refresh_max_age_ms=10_000),
    )
    assert parse_advice(content, "billing") == {
        "east": Advice("advice[1]", ("b",), 60_000, COMPUTED_MS + 500, 24 * HOUR_MS),
        "cluster": Advice("advice[2]", ("c", "d"), 10_000, COMPUTED_MS, 24 * HOUR_MS),
    }


def test_members_that_a_later_pipeline_adds_are_ignored() -> None:
    content = document(entry(broker_hints=[1]), made_by="a later one")
    assert parse_advice(content, "billing").keys() == {"cluster"}


def test_a_broken_entry_of_another_service_is_that_services_matter() -> None:
    content = document(entry(service="search", warm_topics=[".."], ttl_ms=-1), entry())
    assert parse_advice(content, "billing")["cluster"].place == "advice[1]"


def test_a_broken_entry_is_named_by_its_place() -> None:
    for content, reported in (
        (b"", "the document: "),
        (b"\xff\xfe", "the document: "),
        (b"[1]", "the document: "),
        (document()[:-9], "the document: "),
        (b'{"version":1}', "the document: Object missing required field `advice`"),
        (document(version=2, advice="other"), "version: 2; this sidecar reads version 1"),
        (document(version="1"), "the document: Expected `int`"),
        (document("billing"), r"advice[0]: "),
        (document({"service": "billing"}), "advice[0]: Object missing required field `cluster_id`"),
        (
            document(entry(cluster_id="east"), entry(ttl_ms="1")),
            "advice[1]: Expected `int`, got `str` - at `$.ttl_ms`",
        ),
        (document(entry(ttl_ms=0)), "advice[0]: Expected `int` >= 1 - at `$.ttl_ms`"),
        (
            document(entry(ttl_ms=MAX_TTL_MS + 1)),
            "advice[0]: Expected `int` <= 2678400000 - at `$.ttl_ms`",
        ),
        (document(entry(refresh_max_age_ms=-1)), "advice[0]: Expected `int` >= 1"),
        (document(entry(refresh_max_age_ms=True)), "advice[0]: Expected `int`, got `bool`"),
        (document(entry(computed_at="2023-11-14T22:00:00")), "advice[0]: Expected `datetime`"),
        (document(entry(computed_at="yesterday")), "advice[0]: Invalid RFC3339"),
        (document(entry(warm_topics="orders")), "advice[0]: Expected `array`"),
        (
            document(entry(warm_topics=["a", 1])),
            "advice[0]: Expected `str`, got `int` - at `$.warm_topics[1]`",
        ),
        (document(entry(warm_topics=["a", "b/c"])), "advice[0].warm_topics[1]: a topic's name has letters"),
        (
            document(entry(warm_topics=["x" * 250])),
            "advice[0].warm_topics[0]: a topic's name has at most 249",
        ),
        (document(entry(warm_topics=[".."])), "advice[0].warm_topics[0]: a topic can't be named '..'"),
        (
            document(entry(), entry()),
            "advice[1]: second entry for service 'billing' on cluster 'cluster'",
        ),
        (b'{"version":1,"advice":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}", "the document: "),
    ):
        outcome, message = ignored(content)
        assert outcome is Outcome.BROKEN, reported
        assert message.startswith(reported), reported


def test_more_topics_than_one_request_may_ask_for_are_too_many() -> None:
    names = [f"t{number}" for number in range(MAX_TOPICS + 1)]
    assert (
        len(
            parse_advice(document(entry(warm_topics=[*names[:-1], names[0]])), "billing")[
                "cluster"
            ].warm_topics
        )
        == 1_000
    )
    outcome, message = ignored(document(entry(warm_topics=names)))
    assert outcome is Outcome.TOO_LARGE
    assert message == "advice[0].warm_topics: 1001 topics; at most 1000 are allowed"


def test_advice_for_other_services_is_none() -> None:
    for content in (document(), b'{"version":1,"advice":[]}'):
        assert ignored(content, "search") == (
            Outcome.OTHER_SERVICE,
            "advice: there is no entry for service 'search'",
        ), content


# -- its time ------------------------------------------------------------------------------------------------


def outcome_at(now_ms: int) -> Outcome:
    advice = parse_advice(document(entry(ttl_ms=HOUR_MS)), "billing")["cluster"]
    try:
        advice.check_age(now_ms)
    except AdviceIgnoredError as error:
        return error.outcome
    return Outcome.USED


def test_it_is_good_from_when_it_was_computed_until_its_time_is_over() -> None:
    for since_computed_ms, outcome in (
        (-AHEAD_MS - 1, Outcome.AHEAD),
        (-AHEAD_MS, Outcome.USED),
        (0, Outcome.USED),
        (HOUR_MS, Outcome.USED),
        (HOUR_MS + 1, Outcome.STALE),
    ):
        assert outcome_at(COMPUTED_MS + since_computed_ms) is outcome, since_computed_ms


# -- anything at all -----------------------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just("billing"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)
MEMBERS = tuple(entry())


@given(st.dictionaries(st.sampled_from(MEMBERS[:-1]), ANYTHING, max_size=2), st.none() | ANYTHING)
def test_any_json_is_taken_whole_or_not_at_all(changed: dict[str, Any], other: object) -> None:
    content = document(entry(**changed), other)
    try:
        taken = parse_advice(content, "billing")
    except AdviceIgnoredError:
        return
    read = json.loads(content)["advice"][0]
    (advice,) = taken.values()
    assert advice.warm_topics == tuple(dict.fromkeys(read["warm_topics"]))
    assert advice.refresh_max_age_ms == read["refresh_max_age_ms"] >= 1
    assert advice.ttl_ms == read["ttl_ms"] >= 1


@given(st.binary(max_size=60), st.integers(0, 400))
def test_no_bytes_at_all_make_it_fail(patch: bytes, at: int) -> None:
    content = document()
    patched = content[:at] + patch + content[at + len(patch) :]
    with contextlib.suppress(AdviceIgnoredError):
        assert parse_advice(patched, "billing")
