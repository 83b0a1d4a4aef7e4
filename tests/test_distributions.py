"""`make dist`: the content of the three distributions, and the same bytes for the same commit."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from requirements.distributions import build, distributions, project

_ROOT: Final = Path(__file__).parents[1]
_VERSION: Final = project()["version"]
_PACKAGES: Final = {each.name: each.packages for each in distributions()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


def _wheel(dist: Path, name: str) -> Path:
    return dist / f"{name.replace('-', '_')}-{_VERSION}-py3-none-any.whl"


def _archive(dist: Path, name: str) -> Path:
    return dist / f"{name.replace('-', '_')}-{_VERSION}.tar.gz"


# -- their content -------------------------------------------------------------------------------------------


def test_a_wheel_holds_its_packages_whole_and_a_source_archive_the_same_files(dist: Path) -> None:
    for name, packages in _PACKAGES.items():
        listed = subprocess.run(
            ("git", "ls-files", *packages), cwd=_ROOT, check=True, capture_output=True, text=True
        )
        with zipfile.ZipFile(_wheel(dist, name)) as wheel, tarfile.open(_archive(dist, name)) as archive:
            held = {path for path in wheel.namelist() if ".dist-info/" not in path}
            archived = {member.name.partition("/")[2] for member in archive.getmembers()}
        assert held == set(listed.stdout.splitlines()), name
        assert archived == held | {"pyproject.toml", "README.md", "PKG-INFO"}, name


def test_the_client_asks_for_crc32c_alone_and_says_what_not_to_install_beside_it(dist: Path) -> None:
    with zipfile.ZipFile(_wheel(dist, "pilotfish-client")) as wheel:
        (path,) = [path for path in wheel.namelist() if path.endswith("/METADATA")]
        metadata = email.message_from_bytes(wheel.read(path))
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert [re.split(r"[<>=]", line)[0] for line in needed] == ["crc32c"]
    assert "Do not install pilotfish beside it" in metadata["Summary"]


def test_every_file_has_its_checksum_and_the_same_commit_gives_the_same(dist: Path, tmp_path: Path) -> None:
    build(tmp_path / "again")
    sums = (dist / "SHA256SUMS").read_text()
    assert (tmp_path / "again" / "SHA256SUMS").read_text() == sums
    assert {line.split()[1] for line in sums.splitlines()} == {
        file.name for file in dist.iterdir() if file.name != "SHA256SUMS"
    }


def test_a_codec_whose_library_is_missing_names_the_extra_and_no_other_module_does() -> None:
    program = """if True:
        import sys
        from client_core import UnsupportedCompressionTypeError
        from client_core.record.codecs import compression_of
        for missing in ("cramjam", "client_core.record.bounded_unpacking"):
            sys.modules[missing] = None
            try:
                compression_of("zstd")
            except (UnsupportedCompressionTypeError, ModuleNotFoundError) as error:
                print(type(error).__name__, error)
            sys.modules["cramjam"] = sys
    """
    ran = subprocess.run((sys.executable, "-c", program), check=True, capture_output=True, text=True)
    first, second = ran.stdout.splitlines()
    assert first == (
        "UnsupportedCompressionTypeError zstd needs the package cramjam: install pilotfish-client with its "
        "extra codecs"
    )
    assert second.startswith("ModuleNotFoundError import of client_core.record.bounded_unpacking halted")


def test_the_client_is_imported_without_what_few_programs_use() -> None:
    """Its import takes 0.2 s of CPU: 270 modules."""
    program = "import sys; import client_core; print(*sys.modules)"
    ran = subprocess.run((sys.executable, "-c", program), check=True, capture_output=True, text=True)
    modules = set(ran.stdout.split())
    assert not {"asyncio", "cramjam", "http", "multiprocessing", "service", "client_core.testing"} & modules
    assert len(modules) <= 320
