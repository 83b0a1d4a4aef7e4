"""`pilotfish inject` where files are no files, objects hold themselves, or a pod is nothing but a sidecar."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from service.cli.inject.faults import InjectError
from service.cli.inject.files import write
from tests.support.injecting import BROKERS, DEPLOYMENT, pod, refused, run

if TYPE_CHECKING:
    from pathlib import Path

_ONLY_A_SIDECAR = (
    'apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels: {pilotfish-sidecar: "true"}\n'
    "spec:\n  containers:\n    - name: pilotfish\n      image: pilotfish\n"
)


def config_map(namespace: str, content: str) -> str:
    return (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: kafka{namespace}}}\n"
        f"data:\n  pilotfish.toml: '{content}'\n---\n"
    )


# -- files ---------------------------------------------------------------------------------------------------


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = run("-f", "-", *BROKERS, "--output", str(pipe), stdin=DEPLOYMENT)
    assert done.exit_code == 1
    assert f"{pipe}: can't be written: it is no file; name another file, or redirect" in done.stderr
    assert pipe.is_fifo()


def test_in_place_follows_links_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path, link = tmp_path / "a.yaml", tmp_path / "b.yaml"
    path.write_text(DEPLOYMENT)
    link.symlink_to(path)
    assert run("-f", str(link), *BROKERS, "--in-place").exit_code == 0
    assert "pilotfish" in path.read_text()
    assert link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.yaml", "b.yaml"]


def test_nothing_is_replaced_before_all_is_written(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "missing" / "bad.yaml"
    good.write_text("before")
    with pytest.raises(InjectError, match=r"bad\.yaml: can't be written: No such file"):
        write({good: "after", bad: "after"})
    assert good.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["good.yaml"]


def test_a_file_of_the_longest_name_is_written(tmp_path: Path) -> None:
    path = tmp_path / f"{'n' * 250}.yaml"
    path.write_text(DEPLOYMENT)
    assert run("-f", str(path), *BROKERS, "--in-place").exit_code == 0
    assert "pilotfish" in path.read_text()


@pytest.mark.parametrize("second", ["{}/./d.yaml", "{}/link.yaml"])
def test_a_file_that_is_given_twice_by_two_names_is_refused(tmp_path: Path, second: str) -> None:
    path = tmp_path / "d.yaml"
    path.write_text(DEPLOYMENT)
    (tmp_path / "link.yaml").symlink_to(path)
    other = second.format(tmp_path)
    done = run("-f", str(path), "-f", other, *BROKERS)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"-f {other}: is given twice, as {path} too; leave one" in done.stderr


# -- manifests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--legacy",), ("--uninject",)])
def test_a_pod_of_nothing_but_a_sidecar_is_refused(words: tuple[str, ...]) -> None:
    given = () if "--uninject" in words else BROKERS
    done = run("-f", "-", *given, *words, stdin=_ONLY_A_SIDECAR)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "document 1 (Pod/a), line 7: its pods have no containers" in done.stderr


def deep(levels: int) -> str:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": []})
    for _ in range(levels):
        text = '{"apiVersion": "v1", "kind": "List", "items": [' + text + "]}"
    return text


@pytest.mark.parametrize("text", ["&a\nkind: List\napiVersion: v1\nitems:\n- *a\n", deep(400)])
def test_a_list_that_holds_itself_or_too_many_is_refused_by_its_line(text: str) -> None:
    assert ": its Lists nest deeper than 50 levels, or hold themselves" in refused(text)


def test_lists_in_each_other_beyond_all_bounds_are_refused_before_they_are_read() -> None:
    assert "is no YAML: nests deeper than 1000 levels" in refused(deep(1_500))


def test_a_merge_into_itself_is_refused() -> None:
    text = "kind: Pod\napiVersion: v1\nmetadata: &a {<<: {<<: *a}}\nspec:\n  containers:\n  - name: a\n"
    assert "line 3: an alias is inside its own anchor" in refused(text)


def test_a_port_whose_protocol_is_null_is_one_of_tcp() -> None:
    text = DEPLOYMENT.replace("containerPort: 8080", "containerPort: 8085\n              protocol: null")
    assert "has port 8085, which is that of the sidecar's API" in refused(text)


def test_the_config_map_of_the_own_namespace_goes_before_one_that_names_none() -> None:
    of_b = DEPLOYMENT.replace("name: web   # as in DNS", "name: web\n  namespace: b")
    own = config_map(", namespace: b", "b = 2")
    words = ("-f", "-", *BROKERS, "--config-map", "kafka")
    alone, both = (run(*words, stdin=f"{text}{of_b}") for text in (own, config_map("", "a = 1") + own))
    assert alone.exit_code == both.exit_code == 0, both.stderr
    checksums = [
        line
        for done in (alone, both)
        for line in done.stdout.splitlines()
        if "checksum/pilotfish-config" in line
    ]
    assert len(checksums) == 2
    assert checksums[0] == checksums[1]


# -- what is said --------------------------------------------------------------------------------------------


def test_the_remedy_is_that_of_the_line_that_is_wrong() -> None:
    text = 'a: "{{x}}"\nb: "c\td"\n' + "c: 1\n" * 5 + "d: [\n"
    assert "correct it there, or just above" in refused(text)


def test_lines_that_end_as_on_old_macs_are_named() -> None:
    assert "its lines end with \\r alone; make that \\n: tr '\\r' '\\n'" in refused(
        DEPLOYMENT.replace("\n", "\r")
    )


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("events_folder=/tmpfoo", "events_folder /tmpfoo must be a volume that you add"),
        ("api_socket=/var/run/x.sock", "api_socket /var/run/x.sock must be in a volume that you add"),
    ],
)
def test_a_folder_that_must_be_a_volume_is_told(setting: str, said: str) -> None:
    done = run("-f", "-", *BROKERS, "--set", setting, stdin=DEPLOYMENT)
    assert done.exit_code == 0
    assert said in done.stderr
    assert pod(done.stdout)
