"""`python -m requirements.release FOLDER`: all files of a release. `make dist` runs it.

| file | holds |
|---|---|
| what `distributions.py` builds | wheels, source archives, charts |
| pilotfish-*.cdx.json | what each flavour of the image installs (`sbom.py`) |
| pilotfish-*-linux-*.oci.tar | the image, by buildah, for each architecture |
| SHA256SUMS | the checksums of all of these |
| SHA256SUMS.sig | its signature, by cosign with the key in COSIGN_KEY |

Bills, images and the signature depend on what this machine has and reaches. One that can't be made here is
left out, with a line `SKIPPED part: reason`; one that should have been made and was not is FAILED, and then
this ends with 1. The environment gives BASE_IMAGE and IMAGE_FLAGS, as for `make image`, and COSIGN_KEY.
Blocks, on the caller's thread: an image takes minutes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from requirements import distributions, sbom

ROOT: Final = Path(__file__).resolve().parents[1]
#: The pins of the image's flavours.
FLAVOURS: Final = ("run.txt", "otel.txt", "oauth.txt", "msk-iam.txt")
ARCHITECTURES: Final = ("amd64", "arm64")
COSIGN: Final = "github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5"
#: Where cosign is built, as are the Go programs of `make check-deploy`.
TOOLS: Final = ROOT / ".cache" / "tools" / "bin"

#: What the kernel says of a program of another architecture, where no emulator is registered.
_FOREIGN_PROGRAM: Final = "exec format error"
_SHOWN_LINES: Final = 12

#: Runs a command with these variables added to the environment, and returns its standard output. Raises
#: SkippedError if there is no such program, and CommandFailedError.
Run = Callable[[Sequence[str], Mapping[str, str]], str]


class SkippedError(Exception):
    """A part of a release can't be made on this machine. The text is the reason."""


class CommandFailedError(Exception):
    """A command ended with another code than 0. The text is its call and last lines, `said` all of them."""

    def __init__(self, command: Sequence[str], said: str) -> None:
        self.said = said.strip()
        lines = self.said.splitlines() or ["it printed nothing"]
        self.last_line = lines[-1].removeprefix("Error: ")
        shown = "\n".join(lines[-_SHOWN_LINES:])
        super().__init__(f"`{shlex.join(command[:3])} …` failed:\n{shown}")


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """A `Run` that runs it, in the root of the checkout and without a standard input."""
    if shutil.which(command[0]) is None:
        raise SkippedError(f"there is no {command[0]} on PATH")
    ran = subprocess.run(  # noqa: S603 - our own words
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ran.returncode:
        raise CommandFailedError(command, ran.stderr or ran.stdout)
    return ran.stdout


class Release:
    """The parts of a release that depend on the machine, made one after the other into a folder.

    `say` gets a line for each. `files` are the names of those that were made.
    """

    def __init__(self, folder: Path, run: Run, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.files: list[str] = []
        self.failed = False
        self._run = run
        self._say = say

    def add_bill(self, pins: str, write: Callable[[str, Path], None] = sbom.write) -> None:
        """The bill of materials of a file of pins."""

        def make(path: Path) -> str:
            try:
                write(pins, path)
            except LookupError as error:
                raise SkippedError(str(error)) from error
            return ""

        self._add(f"SBOM of {pins}", sbom.file_name(pins), make)

    def add_image(self, architecture: str, base: str, flags: Sequence[str] = ()) -> None:
        """The image for linux/architecture on a base, as an OCI archive. `flags` are buildah's."""
        platform = f"linux/{architecture}"
        version = distributions.project()["version"]

        def make(path: Path) -> str:
            pinned = pinned_base(base, platform, self._run)
            tag = f"localhost/pilotfish:{version}-{architecture}"
            try:
                self._run(_build_command(pinned, platform, tag, flags, self._run), {})
            except CommandFailedError as error:
                if _FOREIGN_PROGRAM not in error.said.lower():
                    raise
                raise SkippedError(f"this machine runs no programs of {platform}; qemu can") from error
            self._run(("buildah", "push", "--quiet", tag, f"oci-archive:{path}:pilotfish:{version}"), {})
            return f" on {pinned}"

        self._add(f"image {platform}", f"pilotfish-{version}-linux-{architecture}.oci.tar", make)

    def add_signature(self, key: str | None, tools: Path = TOOLS) -> None:
        """The signature of SHA256SUMS by a private key: a file, or one of cosign's KMS addresses."""

        def make(path: Path) -> str:
            if not key:
                raise SkippedError("COSIGN_KEY names no private key")
            sign(path.with_suffix(""), key, cosign(self._run, tools), self._run)
            return ""

        self._add("signature", f"{distributions.SUMS}.sig", make)

    def _add(self, part: str, name: str, make: Callable[[Path], str]) -> None:
        path = self.folder.resolve() / name
        path.unlink(missing_ok=True)  # one of an earlier release
        try:
            more = make(path)
        except SkippedError as error:
            self._say(f"SKIPPED {part}: {error}")
        except (CommandFailedError, subprocess.CalledProcessError) as error:
            self.failed = True
            path.unlink(missing_ok=True)  # half of one
            self._say(f"FAILED {part}: {error}")
        else:
            self.files.append(name)
            self._say(f"{name}{more}")


def default_base() -> str:
    """The base that the Dockerfile names."""
    found = re.search(
        r"^ARG BASE_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    if found is None:
        raise LookupError("the Dockerfile has no BASE_IMAGE")
    return found[1]


def pinned_base(base: str, platform: str, run: Run) -> str:
    """Pulls a base image and returns its name with the digest of what was pulled.

    A tag is looked up anew, because it moves; a digest and a local image (localhost/…) are taken from the
    storage if they are there. Raises SkippedError if it can't be pulled, or is not of this platform.
    """
    policy = "missing" if "@" in base or base.startswith("localhost/") else "always"
    try:
        pulled = run(("buildah", "pull", "--quiet", "--policy", policy, "--platform", platform, base), {})
    except CommandFailedError as error:
        raise SkippedError(f"its base {base} can't be pulled: {error.last_line}") from error
    form = "{{.FromImageDigest}} {{.OCIv1.OS}}/{{.OCIv1.Architecture}}"
    inspected = run(("buildah", "inspect", "--type", "image", "--format", form, pulled.split()[-1]), {})
    digest, found = inspected.split()
    if found != platform:
        raise SkippedError(f"its base {base} is of {found} only")
    name = base.partition("@")[0]
    last = name.rpartition("/")[2]
    return f"{name.removesuffix(last)}{last.partition(':')[0]}@{digest}"


def _build_command(base: str, platform: str, tag: str, flags: Sequence[str], run: Run) -> Sequence[str]:
    name, _, digest = base.partition("@")
    revision = run(("git", "describe", "--always", "--dirty", "--abbrev=40"), {}).strip()
    arguments = {
        "BASE_IMAGE": base,
        "VERSION": distributions.project()["version"],
        "REVISION": revision,
    }
    labels = {"name": name, "digest": digest}
    return (
        *("buildah", "build", "--pull-never", "--layers=false", "--platform", platform, "--tag", tag),
        *flags,  # before ours: the last of two values is taken, and the labels must be true
        *(word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")),
        *(
            word
            for key, value in labels.items()
            for word in ("--label", f"org.opencontainers.image.base.{key}={value}")
        ),
        ".",
    )


def cosign(run: Run, tools: Path = TOOLS, path: str | None = None) -> str:
    """Returns the program: from `path` (else PATH) or `tools`, or built in minutes from the Go module proxy.

    Raises SkippedError.
    """
    found = shutil.which("cosign", path=path) or shutil.which(str(tools / "cosign"))
    if found is not None:
        return found
    tools.mkdir(parents=True, exist_ok=True)
    try:
        run(("go", "install", COSIGN), {"GOBIN": str(tools), "CGO_ENABLED": "0"})
    except SkippedError as error:
        raise SkippedError(f"there is no cosign on PATH, and {error} to build it") from error
    except CommandFailedError as error:
        raise SkippedError(f"there is no cosign on PATH, and it can't be built: {error.last_line}") from error
    return str(tools / "cosign")


def sign(path: Path, key: str, program: str, run: Run) -> None:
    """Writes the signature of a file beside it, as `.sig`. COSIGN_PASSWORD in the environment is the key's.

    Needs cosign 2.6 or newer. The signature is not sent to a transparency log: a release may be made offline.
    Raises CommandFailedError.
    """
    # Version 3 leaves the log out only in the format of version 2, which both write if they are asked to.
    version_2 = ("--tlog-upload=false", "--new-bundle-format=false", "--use-signing-config=false")
    signature = path.with_name(f"{path.name}.sig")
    output = ("--output-signature", str(signature))
    run((program, "sign-blob", "--yes", *version_2, "--key", key, *output, str(path)), {})
    signature.chmod(0o644)  # cosign writes it for its user alone


def main(folder: Path, environment: Mapping[str, str], run: Run, say: Callable[[str], None]) -> int:
    """Makes a release into a folder, and returns the exit code."""
    distributions.build(folder)
    built = distributions.built()
    for name in built:
        say(name)
    release = Release(folder, run, say)
    for pins in FLAVOURS:
        release.add_bill(pins)
    base = environment.get("BASE_IMAGE") or default_base()
    flags = shlex.split(environment.get("IMAGE_FLAGS", ""))
    for architecture in ARCHITECTURES:
        release.add_image(architecture, base, flags)
    distributions.write_sums(folder, [*built, *release.files])
    say(distributions.SUMS)
    release.add_signature(environment.get("COSIGN_KEY"))
    return int(release.failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), os.environ, run_command, lambda line: print(line, flush=True)))
