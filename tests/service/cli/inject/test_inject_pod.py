"""The sidecar into a pod template and out of it, as values: grace period, notes, what was there before."""

from __future__ import annotations

import pytest

from service.cli.inject.container import Sidecar
from service.cli.inject.pod import NOTE, Object, put_in, take_out

SIDECAR = Sidecar("pilotfish:1", {})
LEGACY = Sidecar("pilotfish:1", {}, native=False)


def template(
    grace: int | None = None, *, labels: Object | None = None, annotations: Object | None = None
) -> Object:
    spec: Object = {"containers": [{"name": "app"}]}
    if grace is not None:
        spec = {"terminationGracePeriodSeconds": grace, **spec}
    metadata: Object = {}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec}


def injected(into: Object, sidecar: Sidecar = SIDECAR, checksum: str | None = None) -> Object:
    return put_in(take_out(into), sidecar, checksum)


def grace(of: Object) -> object:
    spec = of["spec"]
    assert isinstance(spec, dict)
    return spec.get("terminationGracePeriodSeconds")


def annotations_of(of: Object) -> object:
    metadata = of["metadata"]
    assert isinstance(metadata, dict)
    return metadata["annotations"]


def asked(app_grace_seconds: int | None = None, **given: int) -> Sidecar:
    return Sidecar("pilotfish:1", {}, app_grace_seconds=app_grace_seconds, **given)  # type: ignore[arg-type]


# -- the grace period ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "sidecar", "expected"),
    [
        # Kubernetes' default for the app, 20 s to drain, 5 s for the rest.
        (None, SIDECAR, 30 + 20 + 5),
        (10, SIDECAR, 10 + 20 + 5),
        (0, SIDECAR, 0 + 20 + 5),
        (60, SIDECAR, 60 + 20 + 5),
        (None, asked(10), 10 + 20 + 5),
        # Never lowered, whatever is said of the app.
        (60, asked(10), 60),
        (30, asked(10), 35),
        (None, asked(drain_timeout_ms=1), 30 + 1 + 5),
        (None, asked(drain_timeout_ms=20_001), 30 + 21 + 5),
        (None, asked(drain_delay_ms=400, drain_timeout_ms=600), 30 + 1 + 5),
        # One of the older form serves on for as long as the app may take.
        (10, LEGACY, 10 + 10 + 20 + 5),
    ],
)
def test_the_grace_period_is_the_apps_and_the_sidecars(
    own: int | None, sidecar: Sidecar, expected: int
) -> None:
    assert grace(injected(template(own), sidecar)) == expected


def test_a_longer_drain_raises_and_a_shorter_one_gives_back_only_what_inject_added() -> None:
    longer = injected(template(40), asked(drain_timeout_ms=100_000))
    assert grace(longer) == 145
    assert grace(injected(longer)) == 65
    assert grace(take_out(injected(longer)).template) == 40


def test_a_grace_period_that_somebody_set_since_is_theirs() -> None:
    changed = injected(template(40))
    changed["spec"] = {**changed["spec"], "terminationGracePeriodSeconds": 500}  # type: ignore[dict-item]
    again = injected(changed)
    assert grace(again) == 500
    assert injected(again) == again
    assert grace(take_out(again).template) == 500


def test_one_that_is_too_short_beside_a_sidecar_is_raised_once() -> None:
    by_hand = injected(template(40))
    by_hand["spec"] = {**by_hand["spec"], "terminationGracePeriodSeconds": 12}  # type: ignore[dict-item]
    again = injected(by_hand)
    assert grace(again) == 55
    assert grace(injected(again)) == 55


# -- what was there ------------------------------------------------------------------------------------------


def test_a_default_container_of_the_users_stays_theirs() -> None:
    name = "kubectl.kubernetes.io/default-container"
    before = template(annotations={name: "other"})
    made = injected(before)
    assert annotations_of(made) == {name: "other", NOTE: "terminationGracePeriodSeconds=unset->55"}
    assert take_out(made).template == before


def test_what_inject_did_is_noted_so_that_people_can_read_it() -> None:
    assert annotations_of(injected(template(10), checksum="abc")) == {
        "kubectl.kubernetes.io/default-container": "app",
        "checksum/pilotfish-config": "abc",
        NOTE: "default-container=app terminationGracePeriodSeconds=10->35",
    }


@pytest.mark.parametrize(
    "before",
    [
        template(),
        template(7, labels={"app": "a"}),
        template(annotations={"a": "b"}),
        {
            "spec": {
                "containers": [{"name": "app"}],
                "volumes": [{"name": "v"}],
                "initContainers": [{"name": "i"}],
            }
        },
        {"metadata": {"labels": {}, "annotations": None}, "spec": {"containers": [{"name": "app"}]}},
    ],
)
@pytest.mark.parametrize("sidecar", [SIDECAR, LEGACY, Sidecar("p:1", {}, {"a": "b"}, "c", readiness=True)])
def test_taking_out_is_the_inverse_of_putting_in(before: Object, sidecar: Sidecar) -> None:
    made = injected(before, sidecar, "sum")
    assert take_out(made).had_sidecar
    after = take_out(made).template
    assert after["spec"] == before["spec"]
    assert [value for value in _metadata(after).values() if value] == [
        value for value in _metadata(before).values() if value
    ]
    assert injected(made, sidecar, "sum") == made


def _metadata(of: Object) -> Object:
    metadata = of.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def test_a_container_of_the_name_without_the_label_is_somebody_elses() -> None:
    spec: Object = {"containers": [{"name": "pilotfish"}, {"name": "app"}]}
    assert not take_out({"spec": spec}).had_sidecar
    assert not take_out({"metadata": {"labels": {"pilotfish-sidecar": "false"}}, "spec": spec}).had_sidecar
    assert take_out({"metadata": {"labels": {"pilotfish-sidecar": "true"}}, "spec": spec}).had_sidecar


def test_a_note_that_nobody_can_read_is_taken_for_none() -> None:
    made = injected(template(40))
    made["metadata"] = {"labels": {"pilotfish-sidecar": "true"}, "annotations": {NOTE: "grace=-1 x=->"}}
    assert grace(take_out(made).template) == 65
    assert take_out(made).grace_is_shared


def test_volumes_of_a_sidecar_go_with_it_and_others_stay() -> None:
    before = template()
    before["spec"] = {**before["spec"], "volumes": [{"name": "pilotfish-secret-"}, {"name": "own"}]}  # type: ignore[dict-item]
    after = take_out(injected(before, Sidecar("p:1", {}, {"a": "b"}, "c"))).template
    assert after["spec"] == before["spec"]
