"""The command that writes `messages/`, on a small jar made here; `make check` runs it on Kafka's own."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from client_core.protocol.api_keys import API_KEYS
from client_core.protocol.generate import KAFKA_VERSION, find_jar, generated_files, main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "kafka-clients.jar"
    with zipfile.ZipFile(path, "w") as archive:
        for number, api in enumerate(API_KEYS):
            for kind in ("Request", "Response"):
                archive.writestr(f"common/message/{api}{kind}.json", _definition(f"{api}{kind}", number))
    return path


def _definition(name: str, api_key: int) -> str:
    message: dict[str, object]
    field = {"name": "TimeoutMs", "type": "int32", "versions": "0+"}
    message = {
        "apiKey": api_key,
        "type": "request",
        "name": name,
        "validVersions": "0-1",
        "flexibleVersions": "1+",
        "fields": [field],
    }
    if name == "InitProducerIdRequest":
        message["latestVersionUnstable"] = True
    return f"// A license.\n{json.dumps(message, indent=2)}\n"


@pytest.fixture
def messages(jar: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "messages"
    assert main(_arguments(jar, folder)) == 0
    return folder


def _check(jar: Path, messages: Path) -> int:
    return main([*_arguments(jar, messages), "--check"])


def _arguments(jar: Path, messages: Path) -> list[str]:
    errors = messages.with_name("broker_errors.py")
    return ["--jar", str(jar), "--out", str(messages), "--errors", str(errors)]


def test_what_was_just_generated_passes_the_check(
    jar: Path, messages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(jar, messages) == 0
    assert capsys.readouterr().err == ""
    assert len(list(messages.glob("*.py"))) == 2 * len(API_KEYS)


def test_a_changed_file_fails_the_check_and_is_shown(
    jar: Path, messages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = messages / "produce_request.py"
    path.write_text(path.read_text().replace("API_KEY: Final = 0", "API_KEY: Final = 9"))
    assert _check(jar, messages) == 1
    error = capsys.readouterr().err
    assert "produce_request.py: line " in error
    assert "'API_KEY: Final = 9', generated 'API_KEY: Final = 0'" in error
    assert "run `python -m client_core.protocol.generate`" in error


def test_a_class_of_an_error_that_is_missing_fails_the_check_and_is_shown(
    jar: Path, messages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = messages.with_name("broker_errors.py")
    path.write_text(path.read_text().replace("class DuplicateVoterError", "class DuplicateVoter"))
    assert _check(jar, messages) == 1
    assert "broker_errors.py: line " in capsys.readouterr().err
    path.unlink()
    assert _check(jar, messages) == 1


def test_an_appended_line_fails_the_check(jar: Path, messages: Path) -> None:
    path = messages / "produce_request.py"
    path.write_text(path.read_text() + "\n")
    assert _check(jar, messages) == 1


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_other_line_ends_fail_the_check(jar: Path, messages: Path, ending: str) -> None:
    path = messages / "produce_request.py"
    path.write_bytes(path.read_bytes().replace(b"\n", ending.encode()))
    assert _check(jar, messages) == 1


def test_a_missing_file_fails_the_check(
    jar: Path, messages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (messages / "produce_request.py").unlink()
    assert _check(jar, messages) == 1
    assert "produce_request.py: missing" in capsys.readouterr().err


def test_a_file_in_excess_fails_the_check_and_is_removed_by_generating(
    jar: Path, messages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (messages / "__init__.py").touch()
    (messages / "fetch_request.py").touch()
    assert _check(jar, messages) == 1
    assert "fetch_request.py: not a generated message" in capsys.readouterr().err
    main(_arguments(jar, messages))
    assert _check(jar, messages) == 0
    assert (messages / "__init__.py").exists()


def test_checking_writes_nothing(jar: Path, tmp_path: Path) -> None:
    assert _check(jar, tmp_path / "none") == 1
    assert not (tmp_path / "none").exists()


def test_a_missing_jar_is_an_error_that_names_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--jar", str(tmp_path / "none.jar"), "--check"]) == 2
    error = capsys.readouterr().err
    assert "none.jar" in error
    assert "make kafka-jars" in error


def test_the_jar_is_looked_for_in_the_cache(tmp_path: Path) -> None:
    assert find_jar(tmp_path) is None
    path = tmp_path / ".cache" / "kafka" / KAFKA_VERSION / f"kafka-clients-{KAFKA_VERSION}.jar"
    path.parent.mkdir(parents=True)
    path.touch()
    assert find_jar(tmp_path) == path


def test_a_version_that_is_unstable_is_left_out_of_the_response_too(jar: Path) -> None:
    """Only the request's definition says so."""
    files = generated_files(jar)
    assert "MAX_VERSION: Final = 0\n" in files["init_producer_id_request.py"]
    assert "MAX_VERSION: Final = 0\n" in files["init_producer_id_response.py"]
    assert "MAX_VERSION: Final = 1\n" in files["produce_response.py"]


def test_a_generated_file_says_so_in_its_first_line(jar: Path) -> None:
    for text in generated_files(jar).values():
        assert text.startswith("# Generated by client_core/protocol/generate.py")
        assert "do not edit" in text.splitlines()[0]
