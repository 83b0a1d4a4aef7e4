"""What Dapr's SDKs ask before they publish."""

from __future__ import annotations

from contextlib import suppress

import pytest

from service.admission.caller import ALL_TOPICS, ANYONE, Caller
from service.dialects.dapr.sidecar_info import Labels
from service.wire.errors import ProblemError
from tests.service.dialects.dapr.dapr_app import refusal, web
from tests.support.fake_producer import with_status
from tests.support.http_app import HttpApp


def test_metadata_is_what_the_javascript_sdk_declares_it_to_be() -> None:
    said = web().get("/v1.0/metadata").json()
    assert said["id"] == "pilotfish"
    for nothing in ("enabledFeatures", "actors", "subscriptions", "httpEndpoints"):
        assert said[nothing] == []
    assert said["extended"] == {"daprRuntimeVersion": said["runtimeVersion"]}
    assert said["components"] == [
        {"name": "pubsub", "type": "pubsub.kafka", "version": "v1", "capabilities": ["BULK_PUBSUB"]}
    ]


def test_metadata_names_the_pubsubs_that_can_be_published_to() -> None:
    app = web(dapr_pubsub_names="a,b", dapr_app_id="checkout")
    said = app.get("/v1.0/metadata").json()
    assert ([component["name"] for component in said["components"]], said["id"]) == (["a", "b"], "checkout")


def test_labels_are_kept_and_replaced() -> None:
    app = web()
    for value in ("blue", "grün ❤", ""):
        answer = app.ask("PUT", "/v1.0/metadata/color", content=value.encode())
        assert (answer.status_code, answer.content) == (204, b"")
        assert app.get("/v1.0/metadata").json()["extended"]["color"] == value


def test_no_label_hides_what_the_sidecar_itself_says() -> None:
    app = web()
    app.ask("PUT", "/v1.0/metadata/daprRuntimeVersion", content=b"99")
    said = app.get("/v1.0/metadata").json()
    assert said["extended"]["daprRuntimeVersion"] == said["runtimeVersion"] != "99"


def test_labels_are_bounded_by_bytes_and_room_comes_back() -> None:
    app = web(dapr_labels_max_bytes=10)
    assert app.ask("PUT", "/v1.0/metadata/a", content=b"123456789").status_code == 204
    for key, value in (("b", b""), ("a", b"1234567890")):
        answer = app.ask("PUT", f"/v1.0/metadata/{key}", content=value)
        assert refusal(app, answer, 413) == "ERR_BODY_READ"
    assert app.ask("PUT", "/v1.0/metadata/a", content=b"1").status_code == 204
    assert app.ask("PUT", "/v1.0/metadata/b", content=b"12345").status_code == 204
    assert app.get("/v1.0/metadata").json()["extended"].items() >= {"a": "1", "b": "12345"}.items()


def test_labels_are_one_apps_own() -> None:
    labels = Labels(4)
    labels.put(ANYONE, "ü", "ü")
    with pytest.raises(ProblemError):
        labels.put(ANYONE, "b", "")
    assert labels.of(ANYONE) == {"ü": "ü"}


def caller(name: str) -> Caller:
    return Caller(name, ALL_TOPICS, ALL_TOPICS)


def test_no_caller_fills_the_room_for_labels_and_all_of_them_stay_within_it() -> None:
    labels, callers = Labels(1_000), [caller(f"caller-{number}") for number in range(20)]
    for one in callers:
        for number in range(1_000):
            with suppress(ProblemError):
                labels.put(one, f"{number}", "x" * 7)
    held = [sum(len(n) + len(v) for n, v in labels.of(one).items()) for one in callers]
    assert sum(held) <= 1_000
    assert held[0] <= 500
    assert held[1] > 200
    assert all(held[:5])
    labels.put(callers[0], "0", "y" * 7)  # what takes no more room is always taken
    assert labels.of(callers[0])["0"] == "y" * 7
    assert labels.of(callers[1])["0"] == "x" * 7


def test_a_label_that_is_not_utf_8_and_a_stray_parameter_are_refused() -> None:
    app = web()
    refusal(app, app.ask("PUT", "/v1.0/metadata/color", content=b"\xff"), 400)
    refusal(app, app.ask("PUT", "/v1.0/metadata/%FF", content=b"x"), 400)
    refusal(app, app.ask("PUT", "/v1.0/metadata/color?x=1", content=b"x"), 422)
    refusal(app, app.get("/v1.0/metadata?x=1"), 422)
    assert list(app.get("/v1.0/metadata").json()["extended"]) == ["daprRuntimeVersion"]


def test_health_is_204_whether_or_not_a_broker_is_known() -> None:
    app = HttpApp(dialects="dapr", console=False)
    assert app.get("/v1.0/healthz").status_code == 204
    answer = app.get("/v1.0/healthz/outbound")
    assert refusal(app, answer, 500) == "ERR_OUTBOUND_HEALTH_NOT_READY"
    app.producer.set_topics({})
    answer = app.get("/v1.0/healthz/outbound")
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_sidecar_that_ends_is_not_healthy() -> None:
    app = web()
    app.app.sidecar.drain.begun = True
    assert refusal(app, app.get("/v1.0/healthz"), 500) == "ERR_HEALTH_NOT_READY"
    assert refusal(app, app.get("/v1.0/healthz/outbound"), 500) == "ERR_OUTBOUND_HEALTH_NOT_READY"


def test_a_client_that_has_failed_is_not_healthy() -> None:
    app = web()
    with_status(app.producer, state="failed")
    assert refusal(app, app.get("/v1.0/healthz"), 500) == "ERR_HEALTH_NOT_READY"


def test_health_can_be_asked_of_one_app() -> None:
    app = web(dapr_app_id="checkout")
    assert app.get("/v1.0/healthz?appid=checkout").status_code == 204
    assert refusal(app, app.get("/v1.0/healthz?appid=other"), 500) == "ERR_HEALTH_APPID_NOT_MATCH"
