"""What pip needs on this machine to reach a package index, as secrets of an image's build.

A machine may have an index of its own, and a proxy whose certificate only the system knows. The Dockerfile
takes both as secrets, `pip_conf` and `pip_ca`, which no layer holds. `traces` are the strings by which either
would be found in an image: hosts of indexes and proxies, and the certificates that are not everybody's.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Where the Dockerfile puts the secret of that name.
CERTIFICATES_IN_BUILD: Final = "/run/pip_ca.pem"

#: Settings of pip's that mean something in another file system than this machine's.
_PORTABLE: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
_PUBLIC: Final = frozenset({"pypi.org", "files.pythonhosted.org", "localhost", "127.0.0.1"})
_SETTING: Final = re.compile(r"^(?:global|install|:env:)\.(?P<name>[a-z-]+)='(?P<value>.*)'$", re.MULTILINE)
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----\n(.*?)-----END CERTIFICATE-----", re.DOTALL)
#: A line in the middle of a certificate: long enough to be nobody else's.
_LINE_CHARACTERS: Final = 64


class PipAccess(NamedTuple):
    """How pip gets at its index here: its settings, and the certificates it trusts, if not its own."""

    settings: Mapping[str, str]
    certificates: Path | None


def access_of_this_machine() -> PipAccess:
    """As pip itself says, from its files and the environment."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    return access_of(listed, os.environ)


def access_of(listed: str, environment: Mapping[str, str]) -> PipAccess:
    """From the output of `pip config list`. The environment, which it prints last, overrides the files."""
    settings = {match["name"]: match["value"] for match in _SETTING.finditer(listed)}
    settings |= {m["name"]: m["value"] for m in _SETTING.finditer(listed) if m[0].startswith(":env:")}
    certificates = settings.get("cert") or environment.get("SSL_CERT_FILE")
    kept = {name: settings[name] for name in _PORTABLE if name in settings}
    return PipAccess(kept, Path(certificates) if certificates else None)


def build_secrets(access: PipAccess, folder: Path) -> list[str]:
    """Flags for `buildah build` or `docker build`; pip's configuration is written into the folder."""
    lines = [f"{name} = {value}" for name, value in access.settings.items()]
    flags: list[str] = []
    if access.certificates is not None:
        lines.append(f"cert = {CERTIFICATES_IN_BUILD}")
        flags += ["--secret", f"id=pip_ca,src={access.certificates}"]
    if lines:
        configuration = folder / "pip.conf"
        configuration.touch(mode=0o600)
        configuration.write_text("\n".join(["[global]", *lines, ""]))
        flags += ["--secret", f"id=pip_conf,src={configuration}"]
    return flags


def traces(access: PipAccess, environment: Mapping[str, str], public_certificates: str) -> list[bytes]:
    """What would be found in an image if this machine's access had got in.

    `public_certificates` are bundles that anyone may have, as PEM.
    """
    addresses = [value for name, value in access.settings.items() if name != "timeout"]
    addresses += [value for name, value in environment.items() if name.lower().endswith("_proxy")]
    found = {host.encode() for host in _hosts(" ".join(addresses).split()) if host not in _PUBLIC}
    if access.certificates is not None:
        own = access.certificates.read_text(encoding="utf-8", errors="replace")
        for body in _bodies(own) - _bodies(public_certificates):
            middle = len(body) // 2 // _LINE_CHARACTERS * _LINE_CHARACTERS
            found.add(body[middle : middle + _LINE_CHARACTERS].encode())
            found.add(base64.b64decode(body)[-_LINE_CHARACTERS:])
    return sorted(found)


def _hosts(addresses: Iterable[str]) -> set[str]:
    """Without ports, schemes, users. What names no host, such as a path, gives none."""
    hosts = (
        urlsplit(a if "//" in a else f"//{a}").hostname for a in addresses if not a.startswith(("/", "."))
    )
    return {host for host in hosts if host and "." in host}


def _bodies(pem: str) -> set[str]:
    """The base64 of each certificate, in one line."""
    return {"".join(match[1].split()) for match in _CERTIFICATE.finditer(pem)}
