"""Java's tables of APIs and of errors against ours. Absent when the golden folder has no `tables/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import client_core
from client_core import errors
from client_core.error_codes import Errors
from client_core.protocol.api_keys import API_KEYS, ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.golden.conftest import Cases


@pytest.mark.golden("tables/api_keys.json")
def test_versions_and_headers_of_an_api_are_javas(cases: Cases) -> None:
    for case in cases:
        api = ApiKey.of(case["id"])
        if api is None:
            assert case["name"] not in {_constant_name(ours) for ours in API_KEYS}
            continue
        assert _constant_name(api) == case["name"]
        assert (api.min_version, api.max_version) == (case["oldest"], case["latest_stable"])
        versions = range(case["oldest"], case["latest"] + 1)
        requests, responses = "request_header_versions_from_oldest", "response_header_versions_from_oldest"
        assert [api.request_header_version(version) for version in versions] == case[requests]
        assert [api.response_header_version(version) for version in versions] == case[responses]


def _constant_name(api: ApiKey) -> str:
    return next(name for name in vars(ApiKey) if getattr(ApiKey, name) is api)


@pytest.mark.golden("tables/errors.json")
def test_an_error_is_taken_as_java_takes_it(cases: Cases) -> None:
    for case in cases:
        row = Errors.of(case["code"])
        assert (row.code, row.name, row.message) == (case["code"], case["name"], case["message"])
        assert (row.retriable, row.refreshes_metadata) == (case["retriable"], case["invalid_metadata"])


@pytest.mark.golden("tables/errors.json")
def test_an_error_is_of_javas_class(cases: Cases) -> None:
    for case in cases:
        if case["exception"] is None:
            assert case["code"] == 0
            continue
        error = errors.error_for(case["code"])
        assert (error.retriable, error.refreshes_metadata) == (case["retriable"], case["invalid_metadata"])
        assert type(error) is getattr(client_core, case["exception"].removesuffix("Exception") + "Error")
        assert isinstance(error, errors.AuthorizationError) == case["authorization"]
        assert isinstance(error, errors.AuthenticationError) == case["authentication"]


@pytest.mark.golden("tables/errors.json")
def test_no_error_is_ours_alone(golden: Callable[[str], Any]) -> None:
    assert {row.code for row in Errors} == {row["code"] for row in golden("tables/errors.json")}


@pytest.mark.golden("tables/api_keys.json")
def test_no_api_is_ours_alone(golden: Callable[[str], Any]) -> None:
    assert {api.id for api in API_KEYS} <= {row["id"] for row in golden("tables/api_keys.json")}
