"""A real Kubernetes API server with its etcd, alone: it validates and stores objects, and nothing runs.

    with ApiServer(folder, apiserver=program, etcd=other) as server:
        server.create("/api/v1/namespaces", {...})
        run_helm("install", ..., kubeconfig=server.kubeconfig)

There is no controller and no kubelet, so a Deployment makes no pods: a test that wants a pod judged sends it.
Ports are free ones of loopback; both processes end with this one (tests/support/process_guard.py). One
thread.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import yaml  # type: ignore[import-untyped]
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from client_core.testing.free_ports import free_ports
from tests.deploy.outcome import UnavailableError
from tests.support.debian_packages import TOOLS, apt_get
from tests.support.process_guard import ProcessGuard
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

#: It was ready within six seconds on two cores.
_START_TIMEOUT_S: Final = 120.0
_UNPACK_TIMEOUT_S: Final = 100


class RefusedError(Exception):
    """The server refused something, or accepted it with a warning. The text is the server's."""


def find_etcd(tools: Path = TOOLS) -> Path:
    """From PATH, KUBEBUILDER_ASSETS, the cache, or out of Debian's package. Raises UnavailableError."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    for found in (shutil.which("etcd"), assets and Path(assets, "etcd"), tools / "usr" / "bin" / "etcd"):
        if found and Path(found).is_file():
            return Path(found)
    tools.mkdir(parents=True, exist_ok=True)
    try:
        if os.geteuid() == 0:  # a new machine has no package lists, and only root may fetch them
            apt_get("update")
        apt_get("download", "etcd-server", folder=tools)
        package = next(tools.glob("etcd-server_*.deb"))
        subprocess.run(("dpkg", "-x", package, tools), check=True, timeout=_UNPACK_TIMEOUT_S)
    except (OSError, StopIteration, subprocess.SubprocessError) as error:
        raise UnavailableError(
            "there is no etcd",
            "install it (Debian and Ubuntu: `apt-get install etcd-server`), or name the folder of etcd and "
            "kube-apiserver in KUBEBUILDER_ASSETS, as `setup-envtest use -p path` prints it",
        ) from error
    return tools / "usr" / "bin" / "etcd"


class ApiServer:
    """One server, from its first instruction to its last. `kubeconfig` is a file for helm and kubectl."""

    def __init__(self, folder: Path, *, apiserver: Path, etcd: Path) -> None:
        self._folder = folder
        self._programs = (etcd, apiserver)
        self._token = secrets.token_hex(16)
        self.kubeconfig = folder / "kubeconfig.yaml"

    def __enter__(self) -> ApiServer:
        store, peer, port = free_ports(3)
        self._url = f"https://127.0.0.1:{port}"
        self._write_credentials()
        self._guard = ProcessGuard()
        etcd, apiserver = self._programs
        log = self._folder / "api-server.log"
        try:
            self._guard.start(
                [str(etcd), *self._etcd_flags(store, peer)], log=self._folder / "etcd.log", cwd=self._folder
            )
            running = self._guard.start(
                [str(apiserver), *self._flags(store, port)], log=log, cwd=self._folder
            )

            def is_ready() -> bool:
                if running.poll() is not None:
                    raise AssertionError(f"kube-apiserver ended with {running.returncode}:\n{_end_of(log)}")
                return self._is_ready()

            wait_until(
                is_ready,
                what="an API server that is ready",
                timeout_s=_START_TIMEOUT_S,
                every_s=0.2,
                last_seen=lambda: _end_of(log),
            )
        except BaseException:
            self._guard.close()
            raise
        self._client = httpx.Client(
            base_url=self._url, headers=self._headers, verify=str(self._certificate), timeout=30
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._guard.close()

    def create(self, path: str, manifest: dict[str, Any], *, dry_run: bool = False) -> None:
        """Sends an object to a path of the API. Raises RefusedError, for a mere warning, too."""
        query = {"dryRun": "All"} if dry_run else {}
        answer = self._client.post(path, json=manifest, params={**query, "fieldValidation": "Strict"})
        if not answer.is_success:
            raise RefusedError(answer.json().get("message", answer.text))
        warnings = answer.headers.get_list("Warning")
        if warnings:
            raise RefusedError(f"a warning: {'; '.join(warnings)}")

    def find(self, path: str) -> dict[str, Any] | None:
        """An object, or a list of them; None where there is none of this name."""
        answer = self._client.get(path)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def patch(self, path: str, changes: dict[str, Any]) -> None:
        """Merges changes into an object. Raises RefusedError."""
        answer = self._client.patch(
            path, json=changes, headers={"Content-Type": "application/merge-patch+json"}
        )
        if not answer.is_success:
            raise RefusedError(answer.json().get("message", answer.text))

    def delete(self, path: str) -> None:
        """Deletes an object, and what it owns in the background. Raises RefusedError."""
        answer = self._client.delete(path, params={"propagationPolicy": "Background"})
        if not answer.is_success:
            raise RefusedError(answer.json().get("message", answer.text))

    def has_kind(self, group_version: str, kind: str) -> bool:
        """Whether it serves objects of this kind yet."""
        answer = self._client.get(f"/apis/{group_version}")
        return answer.is_success and any(it["kind"] == kind for it in answer.json()["resources"])

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    @property
    def _certificate(self) -> Path:
        """The server's own, which it makes for itself."""
        return self._folder / "certificates" / "apiserver.crt"

    def _is_ready(self) -> bool:
        if not self._certificate.is_file():
            return False
        try:
            url = f"{self._url}/readyz"
            return httpx.get(url, headers=self._headers, verify=str(self._certificate)).is_success
        except (httpx.TransportError, OSError):
            return False

    def _etcd_flags(self, port: int, peer_port: int) -> Sequence[str]:
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        return (
            *("--data-dir", str(self._folder / "etcd"), "--unsafe-no-fsync"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        )

    def _flags(self, store: int, port: int) -> Sequence[str]:
        key = str(self._folder / "service-accounts.key")
        return (
            f"--etcd-servers=http://127.0.0.1:{store}",
            *("--bind-address=127.0.0.1", f"--secure-port={port}"),
            f"--cert-dir={self._folder / 'certificates'}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            # Without controllers the account `default`, which each pod needs, is missing.
            "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.0.0.0/24",
        )

    def _write_credentials(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        (self._folder / "service-accounts.key").write_bytes(pem)
        (self._folder / "tokens.csv").write_text(f"{self._token},admin,admin,system:masters\n")
        cluster = {"server": self._url, "certificate-authority": str(self._certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "admin"}}],
            "current-context": "it",
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self.kubeconfig.chmod(0o600)


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.is_file() else ""
