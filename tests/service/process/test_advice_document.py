"""From bytes to what is meant for one service; whatever is wrong is named and taken for nothing."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.process.advice_document import (
    AHEAD_MS,
    MAX_TOPICS,
    Advice,
    AdviceIgnoredError,
    Outcome,
    parse_advice,
)
from tests.service.process.advice_documents import COMPUTED_AT, HOUR_MS, document, entry

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


def test_what_a_later_pipeline_adds_is_left_alone() -> None:
    content = document(entry(broker_hints=[1]), made_by="a later one")
    assert parse_advice(content, "billing").keys() == {"cluster"}


def test_a_broken_entry_of_another_service_is_that_services_matter() -> None:
    content = document(entry(service="search", warm_topics=[".."], ttl_ms=-1), entry())
    assert parse_advice(content, "billing")["cluster"].place == "advice[1]"


def test_what_is_broken_is_named_by_its_place() -> None:
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
            "advice[1]: advises service 'billing' on cluster 'cluster' a second time",
        ),
        (b'{"version":1,"advice":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}", "the document: "),
    ):
        outcome, message = ignored(content)
        assert outcome is Outcome.BROKEN, reported
        assert message.startswith(reported), reported


def test_more_topics_than_one_request_may_ask_for_are_too_many() -> None:
    names = [f"t{number}" for number in range(MAX_TOPICS + 1)]
    assert (
        len(parse_advice(document(entry(warm_topics=names[:-1])), "billing")["cluster"].warm_topics) == 1_000
    )
    outcome, message = ignored(document(entry(warm_topics=names)))
    assert outcome is Outcome.TOO_LARGE
    assert message == "advice[0].warm_topics: 1001 topics, at most 1000 are taken"


def test_advice_for_other_services_is_none() -> None:
    for content in (document(), b'{"version":1,"advice":[]}'):
        assert ignored(content, "search") == (
            Outcome.OTHER_SERVICE,
            "advice: holds none for service 'search'",
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
