"""No body takes many times its length while it is read, whatever it is made of and wherever it is sent."""

from __future__ import annotations

import tracemalloc
from typing import Final

import pytest

from service.strict_json import SEARCHED_BYTES
from tests.fuzz.http_bodies import PATHS
from tests.support.http_app import HttpApp

#: More than those have that are looked through for a fault's place, which may take thirty times their length.
_BODY_BYTES: Final = SEARCHED_BYTES + 100_000
#: The body, its compacted copy, one of an array that is taken to pieces; and what is bounded by a number of
#: its own, such as the thousand records that may be read here, and ten thousand headers.
_TIMES: Final = 8


def _array(item: bytes) -> bytes:
    return b"[" + b",".join([item] * (_BODY_BYTES // (len(item) + 1))) + b"]"


def _members() -> bytes:
    return b"{" + b",".join(b'"%x":0' % n for n in range(_BODY_BYTES // 9)) + b"}"


_BODIES: Final = {
    "nulls": _array(b"null"),
    "zeros": _array(b"0"),
    "empty objects": _array(b"{}"),
    "members": _members(),
    "an entry of members": b"[" + _members() + b"]",
    "empty records": b'{"records":' + _array(b"{}") + b"}",
    "empty entries": b'{"entries":' + _array(b"{}") + b"}",
    "zeros for entries": b'{"entries":' + _array(b"0") + b"}",
    "headers": b'{"records":[{"value":1,"headers":' + _array(b'{"key":"a","value":""}') + b"}]}",
    "headers of v3": b'{"value":{"type":"JSON","data":1},"headers":' + _array(b'{"name":"a"}') + b"}",
    "a value of objects": b'{"records":[{"value":' + _array(b"{}") + b"}]}",
    "look-ups": b'{"lookups":' + _array(b"{}") + b"}",
}


@pytest.mark.parametrize(("path", "content_type"), PATHS, ids=lambda part: part)
def test_no_body_takes_many_times_its_length(path: str, content_type: str) -> None:
    web = HttpApp(max_records_per_request=1_000)
    web.producer.set_topics({"orders": 3})
    cluster_id = web.get("/v1/cluster").json()["cluster_id"]
    path = path.replace("/clusters/cluster/", f"/clusters/{cluster_id}/")
    headers = {"content-type": content_type}
    web.post(path, content=b'{"a":1}', headers=headers)  # what is made once is made
    for name, body in _BODIES.items():
        tracemalloc.start()
        try:
            answer = web.post(path, content=body, headers=headers)
            taken = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert answer.status_code < 500, (name, answer.text[:500])
        assert taken < _TIMES * len(body), f"{name}: {taken:,} bytes for {len(body):,}, {answer.status_code}"
