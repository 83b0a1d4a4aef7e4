"""Each check of check_image.py finds its fault. The image itself is built there, which takes minutes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy import image_contents as contents
from tests.deploy.debian_programs import ProgramFailedError, output_of
from tests.deploy.dockerfile_text import read
from tests.deploy.image_builder import ImageConfig
from tests.deploy.oci_container import bundle_config
from tests.deploy.pip_secrets import PipAccess, access_of, build_secrets, traces
from tests.deploy.seccomp_profile import without_capabilities

#: A random body: enough to distinguish one certificate from another.
_OWN_BODY: Final = base64.b64encode(bytes(range(256)) * 4).decode()
_PUBLIC_BODY: Final = base64.b64encode(bytes(reversed(range(256))) * 4).decode()

_IMAGE: Final = ImageConfig(
    user="10001:10001",
    entrypoint=("pilotfish",),
    command=("serve",),
    environment={"PATH": "/opt/pilotfish/bin:/bin", "PILOTFISH_ADMIN_HOST": "0.0.0.0"},
    exposed_ports=("9464/tcp",),
    stop_signal="SIGTERM",
    labels={},
    healthcheck=("CMD", "pilotfish", "healthcheck"),
    everything="{}",
)


def _pem(body: str) -> str:
    lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image's root without faults, except that its files belong to the user who runs the tests."""
    packages = tmp_path / contents.PROGRAM / "lib" / "python3.13" / "site-packages"
    for name, version in (("pilotfish", "0.1.0"), ("Ruamel_Yaml", "0.19")):
        (packages / f"{name}-{version}.dist-info").mkdir(parents=True)
        metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nA text.\n"
        (packages / f"{name}-{version}.dist-info" / "METADATA").write_text(metadata)
    for folder in ("usr/bin", "root", "tmp", "opt/pilotfish/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "usr/bin/last").touch()
    (tmp_path / "usr/bin/ccrewrite").touch()
    return tmp_path


def test_nothing_is_found_where_nothing_is_wrong(root: Path) -> None:
    found = [contents.compilers(root), contents.unwanted_packages(root), contents.caches(root)]
    assert found == [[], [], []]
    assert contents.traces(root, [b"index.example.com"]) == []


def test_a_compiler_is_found_by_any_of_its_names(root: Path) -> None:
    for name in ("gcc", "x86_64-linux-gnu-gcc-14", "cc", "g++", "ld", "as", "make", "cargo"):
        (root / "usr/bin" / name).touch()
        assert contents.compilers(root) == [f"/usr/bin/{name} is a compiler"]
        (root / "usr/bin" / name).unlink()


def test_packages_and_commands_that_do_not_belong_there_are_named(root: Path) -> None:
    (contents.site_packages(root) / "pyspark").mkdir()
    (root / contents.PROGRAM / "bin" / "pip").touch()
    assert contents.unwanted_packages(root) == ["pyspark is in the image", "the command pip is in the image"]


def test_leftovers_of_a_build_are_named(root: Path) -> None:
    folder = "root/.cache"  # in the image
    (root / folder).mkdir()
    (root / folder / "wheel").touch()
    assert contents.caches(root) == [f"/{folder}/wheel is left over"]


def test_files_that_others_may_write_are_named(root: Path) -> None:
    file = root / contents.PROGRAM / "bin" / "pilotfish"
    file.touch()
    file.chmod(0o666)
    assert any(
        "bin/pilotfish belongs to" in fault and "-rw-rw-rw-" in fault for fault in contents.writable(root)
    )


def test_distributions_are_reported_by_pips_form_of_their_names(root: Path) -> None:
    assert contents.installed(root) == {"pilotfish": "0.1.0", "ruamel-yaml": "0.19"}


def test_a_missing_an_extra_and_another_distribution_are_distinguished() -> None:
    assert contents.differences({"a": "1", "b": "2"}, {"a": "2", "c": "3"}) == [
        "a is 1, and should be 2",
        "b is 2, and should be missing",
        "c is missing, and should be 3",
    ]


def test_a_trace_is_found_in_any_file(root: Path) -> None:
    (root / "opt/pilotfish/lib/binary.so").write_bytes(b"\x00\x01https://index.example.com/simple\x00")
    (fault,) = contents.traces(root, [b"proxy.example.com", b"index.example.com"])
    assert "/opt/pilotfish/lib/binary.so" in fault
    assert "index.example.com" in fault


_LISTED: Final = """\
:env:.index-url='https://user:secret@index.example.com/simple'
:env:.find-links='/opt/somewhere'
global.index-url='https://other.example.com/simple'
global.cert='/etc/ssl/corporate.pem'
global.timeout='60'
"""


def test_the_environment_of_pip_beats_its_files_and_paths_of_this_machine_stay_here() -> None:
    access = access_of(_LISTED, {})
    assert access.settings == {"index-url": "https://user:secret@index.example.com/simple", "timeout": "60"}
    assert access.certificates == Path("/etc/ssl/corporate.pem")


def test_a_machine_that_needs_nothing_lends_nothing(tmp_path: Path) -> None:
    assert build_secrets(access_of("", {}), tmp_path) == []


def test_pips_settings_are_lent_as_a_file_that_names_the_certificates_where_they_will_be(
    tmp_path: Path,
) -> None:
    flags = build_secrets(access_of(_LISTED, {}), tmp_path)
    file = tmp_path / "pip.conf"
    assert flags == [
        *("--secret", "id=pip_ca,src=/etc/ssl/corporate.pem"),
        *("--secret", f"id=pip_conf,src={file}"),
    ]
    assert file.read_text().splitlines() == [
        "[global]",
        "index-url = https://user:secret@index.example.com/simple",
        "timeout = 60",
        "cert = /run/pip_ca.pem",
    ]
    assert file.stat().st_mode & 0o077 == 0, "it may hold a password"


def test_traces_are_the_hosts_and_the_certificates_that_only_this_machine_has(tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_text(_pem(_OWN_BODY) + _pem(_PUBLIC_BODY))
    access = PipAccess(access_of(_LISTED, {}).settings, own)
    found = traces(access, {"HTTPS_PROXY": "http://proxy.example.com:3128"}, _pem(_PUBLIC_BODY))
    assert [needle for needle in found if needle.endswith(b".example.com")] == [
        b"index.example.com",
        b"proxy.example.com",
    ]
    assert len(found) == 4, "and of one certificate a line of its text and a part of its bytes"
    text = own.read_bytes().split(b"-----END")[0]
    assert [needle in text for needle in found].count(True) == 1
    assert [needle in base64.b64decode(_OWN_BODY) for needle in found].count(True) == 1
    assert all(needle not in base64.b64decode(_PUBLIC_BODY) for needle in found)


def test_the_public_index_is_no_trace() -> None:
    assert traces(access_of("global.index-url='https://pypi.org/simple'", {}), {}, "") == []


def test_a_container_has_a_read_only_root_no_capabilities_and_the_images_user(tmp_path: Path) -> None:
    config = bundle_config(_IMAGE, tmp_path, environment={"A": "b"}, files={"/etc/pilotfish": tmp_path})
    process = config["process"]
    assert config["root"] == {"path": str(tmp_path), "readonly": True}
    assert process["user"] == {"uid": 10001, "gid": 10001}
    assert process["args"] == ["pilotfish", "serve"]
    assert process["env"] == ["PATH=/opt/pilotfish/bin:/bin", "PILOTFISH_ADMIN_HOST=0.0.0.0", "A=b"]
    assert process["noNewPrivileges"] is True
    assert set(map(tuple, process["capabilities"].values())) == {()}
    writable = [m["destination"] for m in config["mounts"] if "ro" not in m.get("options", [])]
    assert writable == ["/proc", "/dev", "/tmp"]
    assert "seccomp" not in config["linux"]


def _profile(*rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 38,
        "defaultErrno": "ENOSYS",
        "syscalls": rules,
    }


def test_a_system_call_that_needs_a_capability_is_not_allowed_without() -> None:
    needs = {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}}
    refused = {
        "names": ["bpf"],
        "action": "SCMP_ACT_ERRNO",
        "excludes": {"caps": ["CAP_SYS_ADMIN"]},
        "errnoRet": 1,
    }
    made = without_capabilities(_profile(needs, refused), "amd64")
    assert made["syscalls"] == [{"names": ["bpf"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]
    assert made["defaultErrnoRet"] == 38


def test_system_calls_of_other_processors_are_left_out() -> None:
    of_arm = {"names": ["breakpoint"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["arm", "arm64"]}}
    assert without_capabilities(_profile(of_arm), "amd64")["syscalls"] == []
    assert len(without_capabilities(_profile(of_arm), "arm64")["syscalls"]) == 1


def test_a_failed_program_is_reported_with_its_call_its_code_and_its_last_words() -> None:
    with pytest.raises(ProgramFailedError, match=r"`sh -c echo why; exit 3` ended with 3:\nwhy"):
        output_of(("sh", "-c", "echo why; exit 3"))


def test_a_dockerfile_is_read_over_comments_and_lines_that_go_on() -> None:
    file = read('ARG A=1\nFROM x\nRUN one \\\n  # a comment\n  two\n\nFROM y\nCMD ["a", "b"]\n')
    assert [arg.rest for arg in file.before] == ["A=1"]
    assert file.one("RUN", 0).rest == "one two"
    assert file.one("CMD").words == ["a", "b"]
