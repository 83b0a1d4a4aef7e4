"""The kubelet of these tests behaves as a kubelet: with containers of a few lines each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from client_core.testing.free_ports import free_ports
from tests.deploy.kubelet import Container, Kubelet, Machine, Pod, PodFailedError, Probe, read_pod
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

#: Serves HTTP on a port: says no to its startup probe a few times, and can be made to stop answering.
_SERVER: Final = """
import http.server, pathlib, sys
port, refusals, deaf = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
class Handler(http.server.BaseHTTPRequestHandler):
    left = refusals
    def do_GET(self):
        Handler.left -= 1
        self.send_response(503 if Handler.left >= 0 or deaf.exists() else 200)
        self.end_headers()
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
_FOR_EVER: Final = "import signal; signal.pause()"
_STUBBORN: Final = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True: signal.pause()
"""
_ENDS_IN_ORDER: Final = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
signal.pause()
"""


def python(name: str, code: str, *words: str, **more: Any) -> Container:
    return Container(name, (sys.executable, "-c", code, *words), **more)


class Server:
    """A sidecar that answers probes."""

    def __init__(self, folder: Path, refusals: int = 0, threshold: int = 50) -> None:
        (port,) = free_ports(1)
        self.deaf = folder / "deaf"
        probe = Probe("/x", port, period_s=0.05, timeout_s=2.0, failure_threshold=threshold)
        self.container = python(
            "side",
            _SERVER,
            str(port),
            str(refusals),
            str(self.deaf),
            startup=probe,
            liveness=probe._replace(failure_threshold=3),
            is_sidecar=True,
        )


def is_ready(kubelet: Kubelet, *names: str) -> None:
    wait_until(lambda: all("ready" in kubelet.log(name) for name in names), what="containers", every_s=0.01)


def test_the_app_starts_when_the_sidecar_has_said_yes_and_ends_before_it(tmp_path: Path) -> None:
    server = Server(tmp_path, refusals=3)
    with Kubelet(Pod((server.container,), (python("app", _ENDS_IN_ORDER),)), tmp_path) as kubelet:
        kubelet.start()
        is_ready(kubelet, "app")
        kubelet.delete()
    assert kubelet.reported == [
        "started side",
        "startup side",
        "started app",
        "terminated app",
        "ended app 0",
        "terminated side",
        "ended side -15",
    ]
    assert kubelet.failures == []


def test_an_init_container_that_is_no_sidecar_runs_to_its_end_first(tmp_path: Path) -> None:
    pod = Pod((python("init", "print('done')"),), (python("app", _ENDS_IN_ORDER),))
    with Kubelet(pod, tmp_path) as kubelet:
        kubelet.start()
    assert kubelet.reported == ["started init", "ended init 0", "started app"]


def test_a_sidecar_that_never_says_yes_keeps_the_app_from_starting(tmp_path: Path) -> None:
    server = Server(tmp_path, refusals=1_000, threshold=3)
    with (
        Kubelet(Pod((server.container,), (python("app", _FOR_EVER),)), tmp_path) as kubelet,
        pytest.raises(PodFailedError, match="side has not started: /x"),
    ):
        kubelet.start()
    assert not kubelet.is_running("app")


def test_a_sidecar_that_ends_while_it_starts_is_reported_with_its_log(tmp_path: Path) -> None:
    probe = Probe("/x", 1, period_s=0.05, timeout_s=1.0, failure_threshold=200)
    ends = python("side", "raise SystemExit('no brokers')", startup=probe, is_sidecar=True)
    with Kubelet(Pod((ends,)), tmp_path) as kubelet, pytest.raises(PodFailedError, match="no brokers"):
        kubelet.start()


def test_a_job_completes_and_its_sidecar_is_ended_then(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with Kubelet(Pod((server.container,), (python("app", "print('work')"),)), tmp_path) as kubelet:
        kubelet.start()
        kubelet.wait_until_completed()
    assert kubelet.reported[2:] == ["started app", "ended app 0", "terminated side", "ended side -15"]


def test_a_container_that_exceeds_the_grace_period_is_killed_and_the_sidecar_has_a_moment_left(
    tmp_path: Path,
) -> None:
    side = python("side", _ENDS_IN_ORDER, is_sidecar=True)
    with Kubelet(Pod((side,), (python("app", _STUBBORN),), grace_s=0.2), tmp_path) as kubelet:
        kubelet.start()
        is_ready(kubelet, "app", "side")
        kubelet.delete()
    assert kubelet.reported[2:] == [
        "terminated app",
        "killed app",
        "ended app -9",
        "terminated side",
        "ended side 0",
    ]


def test_a_hook_holds_the_next_container_back(tmp_path: Path) -> None:
    mark = tmp_path / "hooked"
    hook = (sys.executable, "-c", f"import pathlib; pathlib.Path({str(mark)!r}).touch()")
    sees = python("app", f"import pathlib; assert pathlib.Path({str(mark)!r}).exists()")
    with Kubelet(Pod((), (python("side", _FOR_EVER, post_start=hook), sees)), tmp_path) as kubelet:
        kubelet.start()
        wait_until(lambda: not kubelet.is_running("app"), what="the app's end", every_s=0.01)
        kubelet.delete()
    assert "ended app 0" in kubelet.reported


def test_a_hook_that_fails_fails_the_pod(tmp_path: Path) -> None:
    hook = (sys.executable, "-c", "raise SystemExit('never')")
    pod = Pod((), (python("side", _FOR_EVER, post_start=hook),))
    with Kubelet(pod, tmp_path) as kubelet, pytest.raises(PodFailedError, match="hook failed: never"):
        kubelet.start()


def test_one_that_does_not_answer_its_liveness_probe_is_ended_and_that_is_reported(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with Kubelet(Pod((server.container,)), tmp_path) as kubelet:
        kubelet.start()
        wait_until(lambda: kubelet.probes_answered >= 2, what="probes that are answered", every_s=0.01)
        server.deaf.touch()
        wait_until(lambda: not kubelet.is_running("side"), what="the end of it", every_s=0.01)
    assert kubelet.failures[-1] == "side is restarted"
    assert kubelet.failures[0].startswith("side /x: 503")


def test_a_manifest_is_read_with_the_replacements_of_this_machine() -> None:
    probe = {"httpGet": {"path": "/startupz", "port": "pf-admin"}, "periodSeconds": 1}
    spec = {
        "terminationGracePeriodSeconds": 55,
        "initContainers": [
            {
                "name": "pilotfish",
                "image": "registry.example.com/x/pilotfish:1.2",
                "args": ["serve"],
                "restartPolicy": "Always",
                "env": [{"name": "FILE", "value": "/etc/secrets/token"}],
                "startupProbe": {**probe, "failureThreshold": 60},
                "livenessProbe": {**probe, "timeoutSeconds": 5},
            }
        ],
        "containers": [
            {"name": "app", "image": "shop", "command": ["sh", "-c"], "args": ["cat /etc/secrets/x"]}
        ],
    }
    machine = Machine(
        programs={"pilotfish": ["python", "-m", "service"]},
        ports={"pf-admin": 1234},
        texts={"/etc/secrets": "/here"},
        environment={"pilotfish": {"MORE": "1"}},
        probe_period_s=0.5,
    )
    pod = read_pod(spec, machine)
    (sidecar,), (app,) = pod.init_containers, pod.containers
    assert sidecar.command == ("python", "-m", "service", "serve")
    assert sidecar.environment == {"FILE": "/here/token", "MORE": "1"}
    assert sidecar.startup == Probe("/startupz", 1234, 1, 1.0, 60)
    assert sidecar.liveness == Probe("/startupz", 1234, 0.5, 5, 6)
    assert (sidecar.is_sidecar, app.is_sidecar, pod.grace_s) == (True, False, 55.0)
    assert app.command == ("sh", "-c", "cat /here/x")
