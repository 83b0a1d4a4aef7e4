"""`make audit`: each file of pins gets its line, and what could not be looked up is never called sound."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from requirements.audit import Ran, audit, known_offline, pin_files

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT: Final = Path(__file__).resolve().parents[2]
_SOUND: Final = {"name": "click", "version": "8.4.0", "vulns": []}
_VULNERABLE: Final = {
    "name": "jinja2",
    "version": "3.0.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.4", "4.0"]}, {"id": "PYSEC-2", "fix_versions": []}],
}
_SKIPPED: Final = {"name": "idna", "skip_reason": "Dependency not found on PyPI"}
_OFFLINE: Final = "; nothing is known offline"


def _found(*pins: Mapping[str, object]) -> Ran:
    return Ran(json.dumps({"dependencies": pins, "fixes": []}), "No known vulnerabilities found\n")


def _audited(*answers: Ran | Exception) -> tuple[int, list[str]]:
    """The exit code and the lines of an audit of files 0, 1, 2 … which pip-audit answers so."""

    def run(path: Path) -> Ran:
        answer = answers[int(path.stem)]
        if isinstance(answer, Exception):
            raise answer
        return answer

    lines: list[str] = []
    return audit([Path(f"{number}.txt") for number in range(len(answers))], run, lines.append), lines


def test_a_file_whose_every_pin_was_looked_up_is_sound() -> None:
    assert _audited(_found(_SOUND)) == (0, ["0.txt: sound"])


def test_a_vulnerable_pin_is_named_with_its_fix() -> None:
    said = (
        "0.txt: VULNERABLE: jinja2 3.0.0 has PYSEC-1, fixed in 3.1.4 or 4.0, "
        "jinja2 3.0.0 has PYSEC-2, fixed in no version"
    )
    assert _audited(_found(_SOUND, _VULNERABLE)) == (1, [said])


def test_pins_that_were_not_looked_up_are_not_sound_although_pip_audit_ends_with_0() -> None:
    left_out = "1 of 2 pins were not looked up: Dependency not found on PyPI"
    assert _audited(_found(_SOUND, _SKIPPED)) == (2, [f"0.txt: NOT AUDITED: {left_out}{_OFFLINE}"])
    code, (line,) = _audited(_found(_VULNERABLE, _SKIPPED))
    assert (code, line.endswith(f"; {left_out}")) == (1, True)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Ran("", "Traceback:\n  …\nrequests.ConnectionError: no route to host\n"), "no route to host"),
        (Ran("", ""), "pip-audit printed nothing"),
        (Ran("{}", "ERROR: an odd answer\n"), "ERROR: an odd answer"),
        (FileNotFoundError(2, "No such file", "bin/pip-audit"), "pip-audit is not installed"),
        (subprocess.TimeoutExpired("pip-audit", 600), "timed out after 600 seconds"),
    ],
)
def test_what_fails_is_reported_as_not_audited_with_the_reason(answer: Ran | Exception, reason: str) -> None:
    code, (line,) = _audited(answer)
    assert code == 2
    assert line.startswith("0.txt: NOT AUDITED: ")
    assert reason in line
    assert line.endswith(_OFFLINE)


def test_it_goes_on_after_a_failure_and_a_vulnerability_decides_the_exit_code() -> None:
    code, lines = _audited(OSError("full"), _found(_VULNERABLE), Ran("", "down"), _found(_SOUND))
    assert code == 1
    assert [line.split()[:2] for line in lines] == [
        ["0.txt:", "NOT"],
        ["1.txt:", "VULNERABLE:"],
        ["2.txt:", "NOT"],
        ["3.txt:", "sound"],
    ]


def test_the_date_of_what_is_known_offline_is_said_of_the_files_that_the_table_is_compared_with() -> None:
    table = tomllib.loads((_ROOT / "tests" / "security" / "advisories.toml").read_text())
    assert known_offline("run.txt") == f"known offline as of {table['as_of']}"
    assert known_offline("dev.txt") == "nothing is known offline"


def test_without_pip_audit_every_file_of_pins_is_reported(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "requirements.audit", str(tmp_path / "pip-audit"))
    ran = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (2, "")
    lines = ran.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == [path.name for path in pin_files()]
    assert all("NOT AUDITED: pip-audit is not installed" in line for line in lines)
    assert all(line.endswith(known_offline(path.name)) for line, path in zip(lines, pin_files(), strict=True))
