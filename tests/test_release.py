"""`make dist`: parts that not every machine can make are made, skipped with a reason, or failed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from requirements.distributions import project, write_sums
from requirements.release import (
    COSIGN,
    CommandFailedError,
    Release,
    SkippedError,
    cosign,
    default_base,
    pinned_base,
    run_command,
    sign,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VERSION: Final = project()["version"]
_DIGEST: Final = f"sha256:{'5' * 64}"
_AMD64: Final = f"pilotfish-{_VERSION}-linux-amd64.oci.tar"


class Programs:
    """A `Run` without programs: it answers by the first two words and writes the files that they write."""

    def __init__(self, **answers: str | Exception) -> None:
        self.commands: list[Sequence[str]] = []
        self.environment: Mapping[str, str] = {}
        self._answers: dict[str, str | Exception] = {
            "buildah pull": "Resolved\nimage-id\n",
            "buildah inspect": f"{_DIGEST} linux/amd64",
            "git describe": "c0ffee\n",
            **{name.replace("_", " ", 1).replace("_", "-"): answer for name, answer in answers.items()},
        }

    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> str:
        self.commands.append(command)
        self.environment = environment
        answer = self._answers.get(" ".join(command[:2]), "")
        if isinstance(answer, Exception):
            raise answer
        for word in command:
            if word.startswith("oci-archive:"):
                Path(word.split(":")[1]).write_text("image")
        if "--output-signature" in command:
            Path(command[command.index("--output-signature") + 1]).write_text("signature")
        return answer

    def words(self, first: str) -> Sequence[str]:
        """The only command that begins so."""
        (found,) = (command for command in self.commands if " ".join(command).startswith(first))
        return found


def _failed(said: str) -> CommandFailedError:
    return CommandFailedError(("buildah", "build", "."), said)


def _release(folder: Path, programs: Programs) -> tuple[Release, list[str]]:
    lines: list[str] = []
    return Release(folder, programs, lines.append), lines


# -- the image -----------------------------------------------------------------------------------------------


def test_an_image_is_built_on_the_digest_that_its_base_was_resolved_to_and_names_it(tmp_path: Path) -> None:
    programs = Programs()
    release, lines = _release(tmp_path, programs)
    release.add_image("amd64", "python:3.13-slim", ["--secret", "id=pip_conf,src=pip.conf"])
    assert (lines, release.files, release.failed) == ([f"{_AMD64} on python@{_DIGEST}"], [_AMD64], False)
    build = programs.words("buildah build")
    for word in (
        f"BASE_IMAGE=python@{_DIGEST}",
        f"VERSION={_VERSION}",
        "REVISION=c0ffee",
        "org.opencontainers.image.base.name=python",
        f"org.opencontainers.image.base.digest={_DIGEST}",
        "id=pip_conf,src=pip.conf",
        "linux/amd64",
    ):
        assert word in build
    assert (tmp_path / _AMD64).read_text() == "image"


@pytest.mark.parametrize(
    ("base", "policy", "name"),
    [
        ("python:3.13-slim", "always", "python"),
        ("example.com:5000/team/python", "always", "example.com:5000/team/python"),
        ("example.com:5000/python:3.13", "always", "example.com:5000/python"),
        (f"python:3.13-slim@{_DIGEST}", "missing", "python"),
        ("localhost/base", "missing", "localhost/base"),
    ],
)
def test_a_tag_is_looked_up_anew_and_a_digest_is_not(base: str, policy: str, name: str) -> None:
    programs = Programs()
    assert pinned_base(base, "linux/amd64", programs) == f"{name}@{_DIGEST}"
    pull = programs.words("buildah pull")
    assert pull[pull.index("--policy") + 1] == policy


def test_the_base_is_the_one_of_the_dockerfile() -> None:
    assert default_base() == "python:3.13-slim"


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"buildah_pull": SkippedError("there is no buildah on PATH")}, "there is no buildah on PATH"),
        (
            {"buildah_pull": _failed("retrying\nError: no such host")},
            "its base python:3.13-slim can't be pulled: no such host",
        ),
        ({"buildah_inspect": f"{_DIGEST} linux/amd64"}, "its base python:3.13-slim is of linux/amd64 only"),
        (
            {
                "buildah_inspect": f"{_DIGEST} linux/arm64",
                "buildah_build": _failed("fork/exec /bin/sh: exec format error\nError: exit status 1"),
            },
            "this machine runs no programs of linux/arm64; qemu can",
        ),
    ],
)
def test_an_image_that_can_not_be_made_here_is_skipped_with_the_reason(
    answers: dict[str, str | Exception], reason: str, tmp_path: Path
) -> None:
    release, lines = _release(tmp_path, Programs(**answers))
    stale = tmp_path / _AMD64.replace("amd64", "arm64")
    stale.write_text("of an earlier release")
    release.add_image("arm64", "python:3.13-slim")
    assert (lines, release.files) == ([f"SKIPPED image linux/arm64: {reason}"], [])
    assert not release.failed
    assert not stale.exists()


def test_a_build_that_fails_is_not_taken_for_one_that_can_not_be_made_here(tmp_path: Path) -> None:
    release, lines = _release(tmp_path, Programs(buildah_build=_failed("STEP 3\nno hash for fastapi")))
    release.add_image("amd64", "python:3.13-slim")
    assert (lines[0].startswith("FAILED image linux/amd64: "), release.files) == (True, [])
    assert "no hash for fastapi" in lines[0]
    assert release.failed


# -- the bills -----------------------------------------------------------------------------------------------


def test_a_bill_whose_licences_are_unknown_is_skipped(tmp_path: Path) -> None:
    def write(pins: str, path: Path) -> None:
        if pins == "msk-iam.txt":
            raise LookupError("boto3 is not installed")
        path.write_text("{}")

    release, lines = _release(tmp_path, Programs())
    for pins in ("run.txt", "otel.txt", "msk-iam.txt"):
        release.add_bill(pins, write)
    assert release.files == [f"pilotfish-{_VERSION}.cdx.json", f"pilotfish-{_VERSION}-otel.cdx.json"]
    assert lines == [*release.files, "SKIPPED SBOM of msk-iam.txt: boto3 is not installed"]


# -- the signature -------------------------------------------------------------------------------------------


def test_nothing_is_signed_without_a_key_and_an_old_signature_is_removed(tmp_path: Path) -> None:
    (tmp_path / "wheel").write_text("wheel")
    (tmp_path / "SHA256SUMS.sig").write_text("of an earlier release")
    write_sums(tmp_path, ["wheel"])
    assert not (tmp_path / "SHA256SUMS.sig").exists()
    programs = Programs()
    release, lines = _release(tmp_path, programs)
    release.add_signature(None)
    assert lines == ["SKIPPED signature: COSIGN_KEY names no private key"]
    assert programs.commands == []


def test_the_sums_are_signed_by_the_key_and_sent_nowhere(tmp_path: Path) -> None:
    programs = Programs()
    sign(tmp_path / "SHA256SUMS", "release.key", "cosign", programs)
    (command,) = programs.commands
    assert command[:3] == ("cosign", "sign-blob", "--yes")
    assert "--tlog-upload=false" in command
    assert command[command.index("--key") + 1] == "release.key"
    assert command[-1] == str(tmp_path / "SHA256SUMS")
    assert (tmp_path / "SHA256SUMS.sig").read_text() == "signature"


def test_cosign_is_built_once_where_there_is_none(tmp_path: Path) -> None:
    programs = Programs()
    assert cosign(programs, tmp_path / "bin", path="") == str(tmp_path / "bin" / "cosign")
    assert programs.words("go install") == ("go", "install", COSIGN)
    assert programs.environment["GOBIN"] == str(tmp_path / "bin")
    (tmp_path / "bin" / "cosign").write_text("program")
    (tmp_path / "bin" / "cosign").chmod(0o755)
    assert cosign(programs, tmp_path / "bin", path="") == str(tmp_path / "bin" / "cosign")
    assert len(programs.commands) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (SkippedError("there is no go on PATH"), "there is no cosign on PATH, and there is no go on PATH"),
        (_failed("go: no such host"), "there is no cosign on PATH, and it can't be built: go: no such host"),
    ],
)
def test_without_cosign_and_go_the_reason_names_both(answer: Exception, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SkippedError, match=reason):
        cosign(Programs(go_install=answer), tmp_path, path="")


# -- the runner ----------------------------------------------------------------------------------------------


def test_a_program_that_is_missing_is_a_reason_to_skip_and_one_that_fails_is_not() -> None:
    assert run_command(("sh", "-c", "echo $WORD; echo more >&2"), {"WORD": "given"}) == "given\n"
    with pytest.raises(SkippedError, match="there is no no-such-program on PATH"):
        run_command(("no-such-program",), {})
    with pytest.raises(CommandFailedError, match=r"`sh -c 'echo .* failed:\none\nError: two$") as caught:
        run_command(("sh", "-c", "echo one >&2; echo Error: two >&2; exit 3"), {})
    assert caught.value.last_line == "two"
