"""`pilotfish inject` as people call it: its output, files, messages, refusals, and exit codes."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.shell_completion import ShellComplete

from service.__main__ import main
from service.cli.inject.faults import InjectError
from service.cli.inject.files import write
from tests.support.injecting import (
    BROKERS,
    DEPLOYMENT,
    documents,
    environment,
    injected,
    objects,
    pod,
    refused,
    run,
    sidecar_in,
    template_of,
)

if TYPE_CHECKING:
    from pathlib import Path

SERVICE = """\
---
apiVersion:   v1
kind: Service
metadata: {name: web,   labels: {a: "b"}}   # odd, and as it came
spec:
    ports:
    - {port: 80, protocol:  TCP}


"""
CONTAINERS: dict[str, Any] = {"containers": [{"name": "app", "image": "app:1"}]}


def workload(kind: str, version: str, spec: dict[str, Any]) -> str:
    """An object of a kind, around a pod's spec."""
    labels: dict[str, Any] = {"metadata": {"labels": {"app": "a"}}}
    selector: dict[str, Any] = {"selector": {"matchLabels": {"app": "a"}}}
    never = {"restartPolicy": "Never"}
    around: dict[str, Any] = {
        "Pod": spec,
        "Job": {"template": {"spec": {**spec, **never}}},
        "CronJob": {"schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": {**spec, **never}}}}},
        "ReplicationController": {"template": {**labels, "spec": spec}},
        "StatefulSet": {**selector, "serviceName": "a", "template": {**labels, "spec": spec}},
    }
    inside = around.get(kind, {**selector, "template": {**labels, "spec": spec}})
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": inside})


KINDS = [
    ("Pod", "v1"),
    ("ReplicationController", "v1"),
    ("Deployment", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("DaemonSet", "apps/v1"),
    ("ReplicaSet", "apps/v1"),
    ("Job", "batch/v1"),
    ("CronJob", "batch/v1"),
]


# -- output --------------------------------------------------------------------------------------------------


def test_lines_are_added_and_none_is_changed() -> None:
    changes = list(difflib.ndiff(DEPLOYMENT.splitlines(), injected(DEPLOYMENT).splitlines()))
    assert [line for line in changes if not line.startswith(("  ", "+ "))] == []
    assert sum(line.startswith("+ ") for line in changes) > 40


def test_each_kind_with_pods_gets_the_sidecar_before_its_app() -> None:
    for kind, version in KINDS:
        template = pod(injected(workload(kind, version, CONTAINERS)))
        (sidecar,) = template["spec"]["initContainers"]
        assert (sidecar["name"], sidecar["restartPolicy"]) == ("pilotfish", "Always"), kind
        assert [container["name"] for container in template["spec"]["containers"]] == ["app"], kind
        assert template["metadata"]["labels"]["pilotfish-sidecar"] == "true", kind
        assert template["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] == "app", kind


def test_the_sidecar_starts_before_other_init_containers_which_may_ask_it() -> None:
    spec = {**CONTAINERS, "initContainers": [{"name": "migrate", "image": "app:1"}]}
    template = pod(injected(workload("Pod", "v1", spec)))
    assert [item["name"] for item in template["spec"]["initContainers"]] == ["pilotfish", "migrate"]


def test_a_legacy_sidecar_is_the_first_container_and_holds_the_next_back_until_it_has_started() -> None:
    text = injected(DEPLOYMENT, "--legacy")
    spec = pod(text)["spec"]
    assert "initContainers" not in spec
    assert [item["name"] for item in spec["containers"]] == ["pilotfish", "web"]
    assert "restartPolicy" not in sidecar_in(text)
    command = sidecar_in(text)["lifecycle"]["postStart"]["exec"]["command"]
    assert command == ["pilotfish", "wait", "--timeout", "60"]
    assert environment(text)["PILOTFISH_DRAIN_DELAY_MS"] == "30000"
    assert pod(text)["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] == "web"


def test_documents_without_pods_are_printed_byte_for_byte() -> None:
    assert injected(DEPLOYMENT + SERVICE).endswith(SERVICE)
    assert injected(SERVICE + "---\n" + DEPLOYMENT).startswith(SERVICE)
    # What Kubernetes would not read is printed too, where it is no workload.
    deep_list = "[" * 300 + "]" * 300
    odd = f"{{? [complex] : !Ref x, 1: 2, 1: 3, deep: {deep_list}}}"
    other = f"kind: Other\napiVersion: x/v1\nmetadata: {{name: a}}\nspec: {odd}\n---\n"
    done = run("-f", "-", *BROKERS, stdin=other + DEPLOYMENT)
    assert (done.exit_code, done.stdout[: len(other)]) == (0, other)


def test_each_item_of_a_list_is_looked_at_by_itself() -> None:
    items = [json.loads(workload(kind, version, CONTAINERS)) for kind, version in KINDS]
    service = documents(SERVICE)[0]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items, service]}, indent=4)
    text = injected(listed)
    assert json.loads(text)["items"][-1] == service
    for one in list(objects(text))[:-1]:
        assert template_of(one)["spec"]["initContainers"][0]["name"] == "pilotfish"


def test_json_stays_json_and_a_byte_order_mark_stays_and_is_no_part_of_a_document() -> None:
    assert injected("\ufeff" + DEPLOYMENT) == "\ufeff" + injected(DEPLOYMENT)
    for indent in (None, 2, 4):
        text = json.dumps(json.loads(workload("Pod", "v1", CONTAINERS)), indent=indent)
        made = injected(text)
        assert json.loads(made)["spec"]["initContainers"][0]["name"] == "pilotfish"
        assert ("\n" in made) == (indent is not None)


def test_a_kind_of_another_group_and_pods_for_windows_are_left_and_said() -> None:
    knative = (
        "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: k}\n"
        "spec: {template: {spec: {containers: [{image: x}]}}}\n"
    )
    windows = workload("Pod", "v1", {**CONTAINERS, "nodeSelector": {"kubernetes.io/os": "windows"}})
    for text, said in (
        (knative, "document 1 (Service/k), line 1: left as it is: it holds containers"),
        (
            DEPLOYMENT.replace("apps/v1", "example.com/v1"),
            "its apiVersion is example.com/v1; supported: apps/… or extensions/…",
        ),
        (windows, "its pods run on Windows"),
    ):
        summary = ("--summary",) if text == windows else ()
        done = run("-f", "-", *BROKERS, *summary, stdin=text)
        assert (done.exit_code, done.stdout, said in done.stderr) == (0, text, True), said


# -- again, anew, and out ------------------------------------------------------------------------------------


DRAIN = ("--set", "drain_timeout_ms=1000")
SECRETS = ("--secret", "a=b", "--config-map", "c", "--readiness")


def test_injecting_twice_gives_the_same_bytes() -> None:
    for words in ((), ("--legacy",), ("--config-map", "kafka", "--readiness")):
        once = injected(DEPLOYMENT, *words)
        assert injected(once, *words) == once, words


def test_what_was_injected_before_makes_no_difference_and_taking_out_gives_the_bytes_that_were_there() -> (
    None
):
    anew = {then: documents(injected(DEPLOYMENT, *then)) for then in ((), ("--legacy",), DRAIN)}
    for first in ((), ("--legacy",), SECRETS):
        before = injected(DEPLOYMENT + SERVICE, *first)
        assert injected(before, "--uninject") == DEPLOYMENT + SERVICE, first
        for then, expected in anew.items():
            assert documents(injected(before, *then))[:-1] == expected, (first, then)


def test_an_older_sidecar_is_brought_up_to_date_and_only_its_lines_change() -> None:
    older = injected(DEPLOYMENT, "--image", "pilotfish:0.0.9")
    changes = difflib.ndiff(older.splitlines(), injected(older, "--image", "pilotfish:0.1.0").splitlines())
    assert [line for line in changes if line.startswith(("- ", "+ "))] == [
        "-           image: pilotfish:0.0.9",
        "+           image: pilotfish:0.1.0",
    ]


def test_a_sidecar_that_came_otherwise_is_replaced_and_its_grace_period_kept() -> None:
    """From the chart or by hand: nothing is noted there."""
    text = injected(DEPLOYMENT)
    by_hand = "".join(line for line in text.splitlines(keepends=True) if "pilotfish-injected" not in line)
    again = injected(by_hand, "--image", "other:1")
    assert sidecar_in(again)["image"] == "other:1"
    assert pod(again)["spec"]["terminationGracePeriodSeconds"] == 55
    assert injected(again, "--image", "other:1") == again


def test_a_job_that_was_made_by_a_cluster_is_brought_up_to_date() -> None:
    """Kubernetes fills in defaults, and puts keys into its own order."""
    made = json.loads(injected(workload("Job", "batch/v1", CONTAINERS)))
    made["spec"]["template"]["spec"]["initContainers"][0]["terminationMessagePath"] = "/dev/termination-log"
    text = json.dumps(made, sort_keys=True)
    assert json.loads(injected(text)) == json.loads(injected(workload("Job", "batch/v1", CONTAINERS)))


def test_an_app_may_share_a_secret_with_its_sidecar() -> None:
    """The token by which a job ends it."""
    mount = {"name": "pilotfish-secret-quit", "mountPath": "/quit"}
    app, without = {"name": "app", "image": "app:1"}, {"name": "other", "image": "app:1"}
    sharing = {**app, "volumeMounts": [mount]}
    words = ("--legacy", "--secret", "quit=a", "--set", "quit_token_file=/etc/pilotfish/secrets/quit/token")
    for spec in ({"containers": [sharing]}, {"initContainers": [sharing], "containers": [without]}):
        once = injected(workload("Job", "batch/v1", spec), *words)
        volume = {"name": "pilotfish-secret-quit", "secret": {"secretName": "a"}}
        assert pod(once)["spec"]["volumes"].count(volume) == 1
        assert injected(once, *words) == once
        other = injected(once, *words[:2], "quit=b", *words[3:])
        assert [volume for volume in pod(other)["spec"]["volumes"] if "secret" in volume] == [
            {"name": "pilotfish-secret-quit", "secret": {"secretName": "b"}}
        ]
        assert pod(injected(other, "--uninject"))["spec"]["volumes"] == [
            {"name": "pilotfish-secret-quit", "secret": {"secretName": "b"}}
        ]


def test_a_fault_beside_a_sidecar_is_reported_with_its_present_line() -> None:
    for words in ((), ("--legacy",)):
        text = injected(DEPLOYMENT, *words).replace("containerPort: 8080", "containerPort: 8085")
        line = text.splitlines().index("            - containerPort: 8085") + 1
        said = f"document 1 (Deployment/web), line {line}: container web uses port 8085"
        assert said in refused(text, *words)


def test_only_what_is_named_is_changed_and_a_name_that_is_not_there_refused_with_those_that_are() -> None:
    other = DEPLOYMENT.replace("name: web   #", "name: other   #")
    text = injected(f"{DEPLOYMENT}---\n{other}", "--only", "deployment/web")
    assert text.endswith(other)
    assert text.startswith(injected(DEPLOYMENT))
    assert injected(text, "--uninject", "--only", "Deployment/web") == f"{DEPLOYMENT}---\n{other}"
    done = run("-f", "-", *BROKERS, "--only", "Deployment/wbe", stdin=DEPLOYMENT)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--only Deployment/wbe: there is no such workload; there are Deployment/web" in done.stderr


# -- files ---------------------------------------------------------------------------------------------------


def test_files_and_folders_become_one_stream(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    (folder / "deeper").mkdir(parents=True)
    (folder / "b.yaml").write_text(SERVICE)
    (folder / "a.yml").write_text(DEPLOYMENT.rstrip("\n"))
    (folder / "c.json").write_text(workload("Pod", "v1", CONTAINERS))
    (folder / "d.txt").write_text("no manifest")
    (folder / "deeper" / "e.yaml").write_text("no manifest")
    last = tmp_path / "last.yaml"
    last.write_text("%YAML 1.2\n---\n" + DEPLOYMENT)
    done = run("-f", str(folder), "-f", str(last), *BROKERS)
    assert done.exit_code == 0, done.stderr
    kinds = [document["kind"] for document in documents(done.stdout)]
    assert kinds == ["Deployment", "Service", "Pod", "Deployment"]
    again = run("-f", "-", *BROKERS, stdin=done.stdout)
    assert again.stdout == done.stdout


def test_in_place_writes_back_what_changed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(DEPLOYMENT.replace("\n", "\r\n").encode())
    (tmp_path / "b.yaml").write_text(SERVICE)
    (tmp_path / "link.yaml").symlink_to("a.yaml")
    (tmp_path / "a.yaml").chmod(0o640)
    untouched = (tmp_path / "b.yaml").stat()
    words = ("-f", str(tmp_path / "link.yaml"), "-f", str(tmp_path / "b.yaml"), "-i")
    done = run(*words, *BROKERS)
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    assert (tmp_path / "a.yaml").read_bytes() == injected(DEPLOYMENT).replace("\n", "\r\n").encode()
    assert (tmp_path / "a.yaml").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link.yaml").is_symlink()
    assert (tmp_path / "b.yaml").stat().st_ino == untouched.st_ino
    assert run(*words, "--uninject").exit_code == 0
    assert (tmp_path / "a.yaml").read_bytes() == DEPLOYMENT.replace("\n", "\r\n").encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yaml", "b.yaml", "link.yaml"]


def test_a_folder_with_a_wrong_file_is_left_as_it_is_and_one_without_manifests_refused(
    tmp_path: Path,
) -> None:
    done = run("-f", str(tmp_path), *BROKERS)
    said = "is a folder without files of .yaml, .yml, .json; its subfolders are not searched"
    assert (done.exit_code, said in done.stderr) == (2, True)
    (tmp_path / "a.yaml").write_text(DEPLOYMENT)
    (tmp_path / "b.yaml").write_text("kind: Pod\napiVersion: v1\n")
    assert run("-f", str(tmp_path), "-i", *BROKERS).exit_code == 1
    assert (tmp_path / "a.yaml").read_text() == DEPLOYMENT


def test_output_writes_a_file_which_may_be_the_one_that_was_read(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(DEPLOYMENT)
    done = run("-f", str(path), "--output", str(path), *BROKERS)
    assert (done.exit_code, done.stdout, path.read_text()) == (0, "", injected(DEPLOYMENT))
    done = run("-f", str(path), "--output", str(tmp_path / "no" / "x.yaml"), *BROKERS)
    assert done.exit_code == 1
    assert "x.yaml: can't be written: No such file or directory" in done.stderr


def test_a_wrong_call_ends_with_2_and_its_remedy() -> None:
    url = "https://example.com/a.yaml"
    said: dict[tuple[str, ...], str] = {
        (): "-f: name a manifest, or - for standard input",
        ("-f", "nowhere.yaml"): "-f nowhere.yaml: there is no such file or folder",
        ("-f", url): f"curl -fsS {url} | pilotfish inject -f -",
        ("-f", "-", "-f", "-"): "-f -: is given twice",
        ("-f", "-", "-i"): "--in-place: can't be used with standard input",
        ("-f", "-", "-i", "-o", "x"): "--in-place and --output: exclude each other",
        ("-f", "-", "--only", "web"): "--only web: must be KIND/NAME, such as Deployment/web",
        ("-f", "-", "--uninject", "--image", "a"): "--image: has no effect with --uninject",
    }
    for words, wanted in said.items():
        done = run(*words, *(() if "--uninject" in words else BROKERS), stdin=DEPLOYMENT)
        assert (done.exit_code, done.stdout) == (2, ""), words
        assert wanted in done.stderr, words


def test_a_file_without_its_option_is_said_with_it_and_anything_else_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(DEPLOYMENT)
    assert f"say -f {path}" in run(str(path), *BROKERS).stderr
    done = run("-f", str(path), *BROKERS, "--kafka", "sasl.password", "hunter2")
    assert done.exit_code == 2
    assert "hunter2" not in done.stderr


# -- wrong manifests -----------------------------------------------------------------------------------------


def test_an_unreadable_manifest_is_refused_with_its_place_and_a_remedy() -> None:
    tabs = "kind: Pod\nmetadata:\n\tname: a\n"
    head = "apiVersion: v1\nkind: Pod\n"
    control = "is not YAML: has a character that YAML does not allow"
    for text, said in (
        ("", "standard input: has no Kubernetes object"),
        ("# nothing\n---\n", "standard input: has no Kubernetes object"),
        ("a: b\n---\nhello\n", "standard input, document 2, line 3: is not a Kubernetes object but a text"),
        ("- kind: Pod\n", "document 1, line 1: is not a Kubernetes object but a list"),
        ("kind: Pod\n---\na: [\n", "document 2, line 4: is not YAML"),
        ("a: b: c\n", "document 1, line 1: is not YAML: mapping values are not allowed here"),
        ("{{- if .Values.web }}\nkind: Pod\n", "looks like a template: render it first, helm template"),
        (tabs, "line 3: is not YAML: found character '\\t' that cannot start"),
        (tabs, "it has tabs, and YAML is indented with spaces"),
        (
            "kind: Pod\n---\na: \x01\n",
            f"standard input, line 3: {control}",
        ),
        ("kind: Pod\nspec: *nowhere\n", "line 2: is not YAML: uses the anchor nowhere, which is not defined"),
        (f"{head}kind: Pod\n", "(Pod/(no name)), line 3: has the key kind twice; keep one"),
        (f"{head}spec: &a {{b: *a}}\n", "an alias is inside its own anchor"),
        (f"{head}x: " + "[" * 200 + "]" * 200, "nests deeper than 100 levels"),
        ("%YAML 1.9\n---\nkind: Pod\n", "is not YAML: can't be read"),
        # The reader of YAML would be at it for long.
        ("a: " + "[" * 20_000, "is not YAML: nests deeper than 1000 levels"),
    ):
        assert said in refused(text), text[:80]


def test_a_text_that_is_no_utf_8_is_refused_with_its_line() -> None:
    done = run("-f", "-", *BROKERS, stdin=b"kind: Pod\n# \xe4\n")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "standard input, line 2: is not UTF-8" in done.stderr


def test_a_pod_that_must_not_get_it_is_named_with_document_and_line() -> None:
    port = "that of the sidecar's"
    mounts = "which this call does not add"
    ours = "a container is named pilotfish already, and inject did not put it there; rename it"
    grace = "terminationGracePeriodSeconds must be a whole number of seconds, 0 or more"
    of_a = "spec:\n  containers:\n  - name: a\n"
    before = SERVICE.count("\n") + 1
    for spec, line, said in (
        ("spec:\n", 4, "its pods have no spec"),
        ("spec: {containers: []}\n", 4, "its pods have no containers"),
        ("spec:\n  volumes:\n  containers:\n", 5, "its pods have no containers"),
        ("spec:\n  containers:\n  - image: a\n", 6, "containers[0] has no string as its name"),
        (f"{of_a}  volumes: x\n", 7, "volumes must be a list"),
        (f"{of_a}  - name: pilotfish\n", 7, ours),
        (f"{of_a}    ports:\n    - containerPort: 9464\n", 8, f"container a uses port 9464, {port} probes"),
        (
            f"{of_a}    ports:\n    - name: x\n    - containerPort: 8085\n",
            9,
            "give the sidecar another by --set api_port=PORT",
        ),
        (
            f"{of_a}    ports:\n    - {{containerPort: 1, name: pf-admin}}\n",
            8,
            "container a names a port pf-admin, as the sidecar does; rename it",
        ),
        (f"{of_a}  volumes:\n  - name: pilotfish-tmp\n", 8, "a volume is named pilotfish-tmp already"),
        (
            f"{of_a}    volumeMounts:\n    - name: pilotfish-config\n",
            8,
            f"container a mounts pilotfish-config, {mounts}",
        ),
        (of_a.replace("spec:\n", "spec:\n  terminationGracePeriodSeconds: 30s\n"), 5, grace),
    ):
        message = refused(f"{SERVICE}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\n{spec}")
        assert f"standard input, document 2 (Pod/p), line {before + line}: " in message, spec
        assert said in message, spec


def test_every_fault_of_every_document_is_reported_at_once() -> None:
    wrong = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n"
    message = refused(f"{wrong}---\n{DEPLOYMENT}---\n{wrong}")
    assert message.count("its pods have no containers") == 2


def test_udp_on_the_same_port_is_no_collision_and_neither_is_a_moved_one() -> None:
    spec = {
        "containers": [{"name": "a", "image": "a", "ports": [{"containerPort": 9464, "protocol": "UDP"}]}]
    }
    injected(workload("Pod", "v1", spec))
    spec["containers"][0]["ports"] = [{"containerPort": 9464}]
    text = injected(workload("Pod", "v1", spec), "--set", "admin_port=9465")
    assert sidecar_in(text)["ports"][0]["containerPort"] == 9465
    assert environment(text)["PILOTFISH_ADMIN_PORT"] == "9465"


def test_a_legacy_job_must_have_a_way_to_end_its_sidecar() -> None:
    job = workload("Job", "batch/v1", CONTAINERS)
    assert "a Job with --legacy never completes" in refused(job, "--legacy")
    secret = ("--secret", "quit=t", "--set", "quit_token_file=/etc/pilotfish/secrets/quit/token")
    done = run("-f", "-", *BROKERS, "--legacy", *secret, stdin=job)
    assert done.exit_code == 0, done.stderr
    assert "Warning: standard input, document 1 (Job/a), line 1: the job must end its sidecar" in done.stderr


# -- messages ------------------------------------------------------------------------------------------------


def test_a_summary_lists_each_object_on_standard_error() -> None:
    done = run("-f", "-", *BROKERS, "--summary", stdin=DEPLOYMENT + SERVICE)
    assert done.stderr.splitlines() == [
        "standard input, document 1 (Deployment/web), line 2: injected",
        "standard input, document 2 (Service/web), line 22: left as it is: it has no pods",
    ]
    again = run("-f", "-", *BROKERS, "--summary", stdin=done.stdout)
    assert again.stderr.splitlines()[0].endswith("(Deployment/web), line 2: is up to date")
    newer = run("-f", "-", *BROKERS, "--summary", "--readiness", stdin=done.stdout)
    assert newer.stderr.splitlines()[0].endswith("brought up to date")
    out = run("-f", "-", "--uninject", "--summary", stdin=done.stdout)
    assert out.stderr.splitlines()[0].endswith("taken out")


def test_nothing_is_said_where_all_went_as_expected_but_that_there_was_nothing_to_do() -> None:
    assert run("-f", "-", *BROKERS, stdin=DEPLOYMENT + SERVICE).stderr == ""
    done = run("-f", "-", *BROKERS, stdin=SERVICE)
    assert (done.exit_code, done.stdout) == (0, SERVICE)
    assert done.stderr == "Nothing has changed: the input has no workload that inject changes.\n"


def test_what_should_be_known_is_a_warning() -> None:
    limits = {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}
    for spec, said in (
        ({"hostNetwork": True}, "with hostNetwork the ports 9464 and 8085 are the node's"),
        (
            {"containers": [{"name": "a", "image": "a", **limits}]},
            "of QoS class Guaranteed and become Burstable",
        ),
    ):
        done = run("-f", "-", *BROKERS, stdin=workload("Pod", "v1", {**CONTAINERS, **spec}))
        assert done.exit_code == 0
        assert done.stderr.startswith("Warning: standard input, document 1 (Pod/a), line 1: ")
        assert said in done.stderr


def test_a_likely_mistake_is_a_warning() -> None:
    localhost = "localhost:9092"
    for servers, setting, said in (
        (localhost, "api_port=8085", "in a pod, localhost is the pod itself"),
        ("a:1", "api_host=0.0.0.0", "with api_host the API can be reached from outside of the pod"),
        ("a:1", "events_folder=/data", "events_folder /data must be a volume that you add"),
        ("a:1", "events_folder=/tmpfoo", "events_folder /tmpfoo must be a volume that you add"),
        ("a:1", "api_socket=/var/run/x.sock", "api_socket /var/run/x.sock must be in a volume that you add"),
    ):
        done = run("-f", "-", "--bootstrap-servers", servers, "--set", setting, stdin=DEPLOYMENT)
        assert done.exit_code == 0
        assert said in done.stderr
        assert pod(done.stdout)


def config_map(content: str = "a = 1", *, namespace: str = "", key: str = "pilotfish.toml") -> str:
    return (
        f"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: kafka{namespace}}}\n"
        f"data:\n  {key}: '{content}'\n"
    )


def test_a_config_map_of_the_input_has_pods_replaced_when_it_changes() -> None:
    def checksum(text: str) -> str | None:
        annotations = pod(injected(text, "--config-map", "kafka"))["metadata"]["annotations"]
        found: str | None = annotations.get("checksum/pilotfish-config")
        return found

    first, other = (checksum(DEPLOYMENT + config_map(content)) for content in ("a = 1", "a = 2"))
    assert first is not None
    assert first != other
    assert len(first) == 64
    assert checksum(DEPLOYMENT) is None
    in_a, in_b = (DEPLOYMENT.replace("name: web   #", f"namespace: {n}\n  name: web   #") for n in "ab")
    own = config_map("b = 2", namespace=", namespace: b")
    assert checksum(in_a + own) is None
    # That of the own namespace goes before one that names none.
    assert checksum(in_b + own) == checksum(in_b + config_map() + own) is not None


def test_a_config_map_without_the_file_is_refused() -> None:
    text = DEPLOYMENT + config_map(key="settings.toml")
    assert "(ConfigMap/kafka), line 22: has no key pilotfish.toml" in refused(text, "--config-map", "kafka")


def test_no_yaml_is_loaded_before_a_manifest_is_read() -> None:
    code = (
        "import sys\nfrom service.__main__ import main\n"
        "for name in ('serve', 'topics', 'inject'):\n"
        "    main([name, '--help'], standalone_mode=False)\n"
        "sys.exit(any(name.startswith('ruamel') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_names_of_settings_are_completed_and_those_of_secrets_are_their_files() -> None:
    complete = ShellComplete(main, {}, "pilotfish", "_PILOTFISH_COMPLETE")

    def offered(option: str, begun: str) -> list[str]:
        return [item.value for item in complete.get_completions(["inject", option], begun)]

    assert offered("--set", "drain") == ["drain_delay_ms=", "drain_timeout_ms="]
    assert offered("--kafka", "sasl.pass") == ["sasl.password.file="]
    assert "linger.ms=" in offered("--kafka", "")


_ONLY_A_SIDECAR = (
    'apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels: {pilotfish-sidecar: "true"}\n'
    "spec:\n  containers:\n    - name: pilotfish\n      image: pilotfish\n"
)


# -- files ---------------------------------------------------------------------------------------------------


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = run("-f", "-", *BROKERS, "--output", str(pipe), stdin=DEPLOYMENT)
    assert done.exit_code == 1
    assert f"{pipe}: can't be written: it is not a file; name another file, or redirect" in done.stderr
    assert pipe.is_fifo()


def test_a_file_of_the_longest_name_is_written(tmp_path: Path) -> None:
    path = tmp_path / f"{'n' * 250}.yaml"
    path.write_text(DEPLOYMENT)
    assert run("-f", str(path), *BROKERS, "--in-place").exit_code == 0
    assert path.read_text() == injected(DEPLOYMENT)


def test_nothing_is_replaced_before_all_is_written(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "missing" / "bad.yaml"
    good.write_text("before")
    with pytest.raises(InjectError, match=r"bad\.yaml: can't be written: No such file"):
        write({good: "after", bad: "after"})
    assert good.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["good.yaml"]


def test_a_file_that_is_given_twice_by_two_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text(DEPLOYMENT)
    (tmp_path / "link.yaml").symlink_to(path)
    for other in (f"{tmp_path}/./d.yaml", f"{tmp_path}/link.yaml"):
        done = run("-f", str(path), "-f", other, *BROKERS)
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"-f {other}: is given twice, as {path} too; give it once" in done.stderr


# -- manifests -----------------------------------------------------------------------------------------------


def test_a_pod_of_nothing_but_a_sidecar_is_refused() -> None:
    for words in ((*BROKERS,), (*BROKERS, "--legacy"), ("--uninject",)):
        done = run("-f", "-", *words, stdin=_ONLY_A_SIDECAR)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "document 1 (Pod/a), line 7: its pods have no containers" in done.stderr


def deep(levels: int) -> str:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": []})
    for _ in range(levels):
        text = '{"apiVersion": "v1", "kind": "List", "items": [' + text + "]}"
    return text


def test_a_document_that_contains_itself_or_too_much_is_refused_by_its_line() -> None:
    merge = "kind: Pod\napiVersion: v1\nmetadata: &a {<<: {<<: *a}}\nspec:\n  containers:\n  - name: a\n"
    lists = ": its Lists nest deeper than 50 levels, or contain themselves"
    bomb = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    for text, said in (
        ("&a\nkind: List\napiVersion: v1\nitems:\n- *a\n", lists),
        (deep(400), lists),
        (deep(1_500), "is not YAML: nests deeper than 1000 levels"),  # before they are read
        (merge, "line 3: an alias is inside its own anchor"),
        (f"kind: Pod\napiVersion: v1\na0: &a0 [x]\n{bomb}", "aliases expand to more than"),
    ):
        assert said in refused(text), text[:80]


def test_a_port_whose_protocol_is_null_is_one_of_tcp() -> None:
    text = DEPLOYMENT.replace("containerPort: 8080", "containerPort: 8085\n              protocol: null")
    assert "uses port 8085, that of the sidecar's API" in refused(text)


def test_the_remedy_is_that_of_the_line_that_is_wrong() -> None:
    text = 'a: "{{x}}"\nb: "c\td"\n' + "c: 1\n" * 5 + "d: [\n"
    assert "correct it there, or just above" in refused(text)
    old_mac = "its lines end with \\r alone; convert them to \\n: tr '\\r' '\\n'"
    assert old_mac in refused(DEPLOYMENT.replace("\n", "\r"))
