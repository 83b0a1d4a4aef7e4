"""The parts of a release that need programs, made for real: `python -m tests.deploy release`. Minutes.

The checksums are signed by cosign with a key that is made for it, and verified by cosign and `cryptography`.
The image becomes an OCI archive by buildah, on a base of Debian's packages (debian_base.py), so nothing is
pulled. cosign is built from the Go module proxy at first.
"""

from __future__ import annotations

import base64
import json
import platform
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from requirements.distributions import SUMS, write_sums
from requirements.release import CommandFailedError, Release, SkippedError, cosign, run_command, sign
from tests.deploy.debian_base import CACHE, base_archive
from tests.deploy.debian_programs import require_programs
from tests.deploy.image_builder import ImageBuilder
from tests.deploy.outcome import BrokenPromiseError
from tests.deploy.pip_secrets import access_of_this_machine, build_secrets
from tests.support.process_guard import ProcessGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Say = Callable[[str], None]

_BASE: Final = "localhost/pilotfish-release-base"
_PASSWORD: Final = {"COSIGN_PASSWORD": "of a key for one test"}
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def check(say: Say) -> None:
    """Signs checksums and makes an archive of the image. Raises BrokenPromiseError and UnavailableError."""
    CACHE.mkdir(parents=True, exist_ok=True)
    guard = ProcessGuard()
    try:
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="release-") as folder:
            guard.remove_at_end(Path(folder))
            try:
                _signature(say, Path(folder))
            except SkippedError as error:
                say(f"SKIPPED signature: {error}")
            _image(say, Path(folder))
    except (AssertionError, CommandFailedError) as error:
        raise BrokenPromiseError(str(error)) from error
    finally:
        guard.close()


def _signature(say: Say, folder: Path) -> None:
    program = cosign(run_command)

    def run(command: Sequence[str], environment: Mapping[str, str]) -> str:
        return run_command(command, {**environment, **_PASSWORD})

    run((program, "generate-key-pair", "--output-key-prefix", str(folder / "release")), {})
    (folder / "wheel").write_text("a file of a release")
    write_sums(folder, ["wheel"])
    sums, signature, public = folder / SUMS, folder / f"{SUMS}.sig", folder / "release.pub"
    sign(sums, str(folder / "release.key"), program, run)
    verify = (program, "verify-blob", "--key", str(public), "--insecure-ignore-tlog", "--signature")
    run((*verify, str(signature), str(sums)), {})
    _verify_by_cryptography(public, signature, sums.read_bytes())
    sums.write_text(sums.read_text().replace("wheel", "whee1"))
    try:
        run((*verify, str(signature), str(sums)), {})
    except CommandFailedError:
        say("SHA256SUMS is signed by cosign, verified, and refused with another byte")
    else:
        raise AssertionError("cosign takes the signature for that of another file")


def _verify_by_cryptography(public: Path, signature: Path, signed: bytes) -> None:
    key = load_pem_public_key(public.read_bytes())
    assert isinstance(key, EllipticCurvePublicKey)
    try:
        key.verify(base64.b64decode(signature.read_text()), signed, ECDSA(SHA256()))
    except InvalidSignature as error:
        raise AssertionError("the signature is not that of ECDSA over SHA-256") from error


def _image(say: Say, folder: Path) -> None:
    archive = base_archive(say)
    require_programs("buildah")
    builder = ImageBuilder(folder)
    builder.import_root(archive, _BASE)
    configuration = folder / "storage.conf"
    places = f'graphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    configuration.write_text(f'[storage]\ndriver = "vfs"\n{places}')
    where = {"CONTAINERS_STORAGE_CONF": str(configuration), "BUILDAH_ISOLATION": "chroot"}

    def run(command: Sequence[str], environment: Mapping[str, str]) -> str:
        return run_command(command, {**environment, **where})

    lines: list[str] = []
    release = Release(folder, run, lines.append)
    own = _ARCHITECTURES[platform.machine()]
    (foreign,) = {*_ARCHITECTURES.values()} - {own}
    secrets = build_secrets(access_of_this_machine(), folder)
    release.add_image(own, _BASE, secrets)
    assert len(release.files) == 1, lines[0]
    described = _configuration(folder / release.files[0])
    labels = described["config"]["Labels"]
    digest = labels["org.opencontainers.image.base.digest"]
    assert lines == [f"{release.files[0]} on {_BASE}@{digest}"], lines
    assert (described["architecture"], described["config"]["User"]) == (own, "10001:10001"), described
    say(f"the image for linux/{own} is an OCI archive that names its base: {digest}")
    release.add_image(foreign, _BASE, secrets)
    assert lines[1].startswith(f"SKIPPED image linux/{foreign}: its base {_BASE} "), lines[1]
    say(f"no image for linux/{foreign} is made of a base for linux/{own}")


def _configuration(archive: Path) -> dict[str, Any]:
    """The configuration of the only image in an OCI archive."""
    with tarfile.open(archive) as tar:

        def blob(digest: str) -> dict[str, Any]:
            return _json(tar, f"blobs/{digest.replace(':', '/')}")

        (image,) = _json(tar, "index.json")["manifests"]
        return blob(blob(image["digest"])["config"]["digest"])


def _json(tar: tarfile.TarFile, name: str) -> dict[str, Any]:
    member = tar.extractfile(name)
    assert member is not None
    read: dict[str, Any] = json.load(member)
    return read
