"""Lists in pages: `page_size` and `page_token` natively, `metadata.next` in REST Proxy v3."""

from __future__ import annotations

import base64
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from service.dialects.rest_v3.schemas import (
    BrokerDataList,
    PartitionDataList,
    ReplicaDataList,
    TopicDataList,
)
from service.lookup.paging import Page, PageQuery, numbers_after
from service.native.schemas import ListQuery
from service.wire.errors import ProblemError
from tests.support.http_app import HttpApp
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel

V3 = "/v3/clusters/cluster"


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    app.producer.set_topics({"orders": 25})
    app.producer.on_brokers = {**{f"t-{n:02}": 1 for n in range(23)}, "orders": 25, "__offsets": 50}
    return app


def pages(web: HttpApp, query: str, **sent: Any) -> list[list[str]]:
    """The names of each page, until there is no next one."""
    found: list[list[str]] = []
    token: str | None = ""
    while token is not None:
        answer = web.get(f"/v1/topics?{query}{token}", **sent)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        found.append([topic["name"] for topic in document["topics"]])
        assert "=" not in (document["next_page_token"] or "")
        token = document["next_page_token"] and f"&page_token={document['next_page_token']}"
    return found


def test_pages_have_every_topic_once_in_order(web: HttpApp) -> None:
    whole = [topic["name"] for topic in web.get("/v1/topics").json()["topics"]]
    assert len(whole) == 24
    for size in (1, 5, 23, 24, 25, 10_001):
        found = pages(web, f"page_size={size}")
        assert [name for page in found for name in page] == whole
        assert all(len(page) == size for page in found[:-1])
    assert pages(web, "page_size=0") == [whole]
    assert len(pages(web, "page_size=10&prefix=t-")) == 3
    assert pages(web, "page_size=10&internal=true&prefix=__") == [["__offsets"]]
    assert pages(web, "page_size=10&prefix=nothing") == [[]]


def test_without_a_size_the_list_is_whole_and_has_no_token(web: HttpApp) -> None:
    assert "next_page_token" not in web.get("/v1/topics").json()


def test_an_empty_token_asks_for_the_first_page(web: HttpApp) -> None:
    first = web.get("/v1/topics?page_size=3").json()
    assert web.get("/v1/topics?page_size=3&page_token=").json() == first
    assert "next_page_token" in web.get("/v1/topics?page_token=").json()


def test_a_token_alone_asks_for_a_page_of_the_usual_size(web: HttpApp) -> None:
    web.producer.on_brokers |= {f"u-{n:04}": 1 for n in range(1_001)}
    token = web.get("/v1/topics?page_size=24").json()["next_page_token"]
    second = web.get(f"/v1/topics?page_token={token}").json()
    assert (len(second["topics"]), second["next_page_token"] is None) == (1_000, False)


def test_a_page_goes_on_where_the_last_one_ended_though_topics_come_and_go(web: HttpApp) -> None:
    first = web.get("/v1/topics?page_size=3").json()
    assert [topic["name"] for topic in first["topics"]] == ["orders", "t-00", "t-01"]
    assert first["next_page_token"] == "GAB4Po8J_090LTAx", "a token is good after an upgrade, too"
    del web.producer.on_brokers["t-01"]
    web.producer.on_brokers["a-new-one"] = 1
    query = f"page_size=2&max_age_ms=0&page_token={first['next_page_token']}"
    web.producer.clock.advance(10_000)
    second = web.get(f"/v1/topics?{query}").json()
    assert [topic["name"] for topic in second["topics"]] == ["t-02", "t-03"]


def test_each_page_has_its_etag(web: HttpApp) -> None:
    first, second = web.get("/v1/topics?page_size=3"), web.get("/v1/topics?page_size=4")
    assert first.headers["etag"] != second.headers["etag"]
    again = web.get("/v1/topics?page_size=3", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304


def test_a_bad_size_or_token_says_where(web: HttpApp) -> None:
    good = web.get("/v1/topics?page_size=3").json()["next_page_token"]
    digest = base64.urlsafe_b64decode(good + "==")[:8]
    numbered = web.get(f"{V3}/topics/orders/partitions?page_size=3").json()["metadata"]["next"]
    no_text = base64.urlsafe_b64encode(digest + b"\xff").decode().rstrip("=")
    tokens = [
        "x",
        "%00",
        "%C3%A9",
        good[:-1],
        good + "A",
        good + "==",
        "A" * 600,
        no_text,
        numbered.split("=")[-1],
    ]
    for query, place in (
        ("page_size=-1", "query.page_size"),
        ("page_size=1.0", "query.page_size"),
        ("page_size=", "query.page_size"),
        ("page_size=2147483648", "query.page_size"),
        ("page_size=1&page_size=2", "query.page_size"),
        ("pagesize=1", "query.pagesize"),
        (f"page_token={good}&page_token={good}", "query.page_token"),
        (f"page_token={good}&prefix=t", "query.page_token"),
        (f"page_token={good}&internal=true", "query.page_token"),
        *((f"page_token={token}", "query.page_token") for token in tokens),
    ):
        answer = web.get(f"/v1/topics?{query}")
        assert (answer.status_code in (400, 422), answer.json()["place"]) == (True, place), query


def test_a_token_of_v3_is_for_one_list(web: HttpApp) -> None:
    web.producer.set_topics({"orders": 25, "other": 25})
    lists = [f"{V3}/brokers", f"{V3}/topics"]
    lists += [f"{V3}/topics/{topic}/partitions" for topic in ("orders", "other")]
    lists += [f"{V3}/topics/orders/partitions/{number}/replicas" for number in (0, 1)]
    lists += [f"{V3}/topics/other/partitions/0/replicas"]
    pages_of = {path: web.get(f"{path}?page_size=1").json()["metadata"]["next"] for path in lists}
    for path in lists:
        for of_list, after in pages_of.items():
            assert after is not None, of_list
            answer = web.get(f"{path}?{urlsplit(after).query}")
            assert answer.status_code == (200 if path == of_list else 400), (path, of_list)


def test_a_token_is_for_each_filter_that_a_list_has(web: HttpApp) -> None:
    token = web.get("/v1/topics?page_size=3").json()["next_page_token"]
    filters = ListQuery.model_fields.keys() - PageQuery.model_fields.keys() - {"max_block_ms", "max_age_ms"}
    assert filters >= {"prefix", "internal"}
    for name in sorted(filters):
        asked = (web.get(f"/v1/topics?page_token={token}&{name}={value}") for value in ("t", "true", "1"))
        assert 400 in {answer.status_code for answer in asked}, (
            f"service/native/metadata.py lacks `{name}` in the filters of `query.page(…)`"
        )


def test_a_token_gives_no_right(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, all={"read": ["*"]}, shop={"read": ["orders", "t-1*"]})
    web = HttpApp(tokens_file=tokens.setting)
    web.producer.on_brokers = {**{f"t-{n:02}": 1 for n in range(23)}, "orders": 1}
    token = web.get("/v1/topics?page_size=3", headers=tokens.of("all")).json()["next_page_token"]
    of_shop = web.get(f"/v1/topics?page_size=5&page_token={token}", headers=tokens.of("shop")).json()
    assert [topic["name"] for topic in of_shop["topics"]] == ["t-10", "t-11", "t-12", "t-13", "t-14"]
    found = pages(web, "page_size=4", headers=tokens.of("shop"))
    assert [len(page) for page in found] == [4, 4, 3]
    assert web.get(f"/v1/topics?page_token={token}").status_code == 401


# -- REST Proxy v3 -------------------------------------------------------------------------------------------


def followed(web: HttpApp, path: str, key: str) -> list[list[Any]]:
    """The keys of each page, by the links."""
    found = []
    while True:
        answer = web.get(path)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        found.append([item[key] for item in document["data"]])
        link = document["metadata"]["next"]
        if link is None:
            return found
        split = urlsplit(link)
        assert f"{split.scheme}://{split.netloc}{split.path}" == document["metadata"]["self"]
        path = f"{split.path}?{split.query}"


def test_lists_of_v3_have_the_next_pages_link(web: HttpApp) -> None:
    found = followed(web, f"{V3}/topics?page_size=7", "topic_name")
    assert [len(page) for page in found] == [7, 7, 7, 3]
    assert [*chain(*found)] == sorted(set(web.producer.on_brokers) - {"__offsets"})
    found = followed(web, f"{V3}/topics/orders/partitions?page_size=10", "partition_id")
    assert [len(page) for page in found] == [10, 10, 5]
    assert [*chain(*found)] == list(range(25))
    assert followed(web, f"{V3}/brokers?page_size=2", "broker_id") == [[1, 2], [3]]
    assert len(followed(web, f"{V3}/topics/orders/partitions/0/replicas?page_size=1", "broker_id")) >= 1
    for path in ("topics", "topics/orders/partitions", "brokers"):
        assert web.get(f"{V3}/{path}").json()["metadata"]["next"] is None


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("brokers", BrokerDataList),
        ("topics", TopicDataList),
        ("topics/orders/partitions", PartitionDataList),
        ("topics/orders/partitions/0/replicas", ReplicaDataList),
    ],
)
def test_a_page_of_v3_has_the_described_shape(web: HttpApp, path: str, shape: type[BaseModel]) -> None:
    document = web.get(f"{V3}/{path}?page_size=1").json()
    assert document["metadata"]["next"] is not None
    shape.model_validate(document)


def test_a_page_has_ten_thousand_items_at_most() -> None:
    pages = [PageQuery(page_size=size, page_token=None).page("list") for size in (9_999, 10_001)]
    assert [page and page.size for page in pages] == [9_999, 10_000]


def test_numbers_begin_after_the_number_of_a_token_which_may_be_made_up() -> None:
    pages = [numbers_after(range(3), Page("list", 2, after))[0] for after in (None, "0", "2")]
    assert pages == [[0, 1], [1, 2], []]
    with pytest.raises(ProblemError, match="does not belong to this list"):
        numbers_after(range(3), Page("list", 2, "x"))


def test_a_token_of_another_list_is_refused_in_v3(web: HttpApp) -> None:
    link = web.get(f"{V3}/topics/orders/partitions?page_size=10").json()["metadata"]["next"]
    query = urlsplit(link).query
    for path in ("topics", "brokers", "topics/orders/partitions/0/replicas"):
        answer = web.get(f"{V3}/{path}?{query}")
        assert answer.status_code == 400, path
        assert "query.page_token" in answer.json()["message"]
    for path in ("", "/topics/orders", "/brokers/1", "/topics/orders/partitions/0"):
        assert web.get(f"{V3}{path}?page_size=1").status_code == 422, path
