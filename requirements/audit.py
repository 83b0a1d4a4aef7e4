"""`python -m requirements.audit PIP_AUDIT`: which pins have known vulnerabilities. `make audit` runs it.

It asks pip-audit about each file of pins in turn and prints one line for each:

    run.txt: sound
    dev.txt: VULNERABLE: jinja2 3.0.0 has PYSEC-2024-1, fixed in 3.1.4
    otel.txt: NOT AUDITED: the reason; known offline as of 2025-12-05

A file is sound only if every pin of it was looked up. Ends with 1 if a file is vulnerable, else with 2 if one
was not audited, else with 0. Needs Python alone. Blocks for a minute or more where PyPI is slow.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT: Final = Path(__file__).resolve().parents[1]
#: What is known without the internet. A test compares it with the pins.
ADVISORIES: Final = ROOT / "tests" / "security" / "advisories.toml"
#: The files that the table is compared with: what the image may install, and the lowest versions allowed.
COMPARED_OFFLINE: Final = ("run.txt", "otel.txt", "oauth.txt", "msk-iam.txt", "lowest.txt")

_TIMEOUT_S: Final = 600
#: Of pip-audit's last line, which may be a long exception.
_REASON_CHARACTERS: Final = 300


class Verdict(Enum):
    """What is known of a file of pins. The value is the exit code that it asks for."""

    SOUND = 0
    VULNERABLE = 1
    NOT_AUDITED = 2


class Ran(NamedTuple):
    """What pip-audit wrote on its two streams. Its exit code does not say whether it looked everything up."""

    stdout: str
    stderr: str


def pin_files() -> list[Path]:
    """All files of pins, by name."""
    return sorted((ROOT / "requirements").glob("*.txt"))


def known_offline(file: str) -> str:
    """What is known of a file of pins without the internet, with the date of the table, as YYYY-MM-DD."""
    if file not in COMPARED_OFFLINE:
        return "nothing is known offline"
    return f"known offline as of {tomllib.loads(ADVISORIES.read_text(encoding='utf-8'))['as_of']}"


def audit(files: Iterable[Path], run: Callable[[Path], Ran], say: Callable[[str], None]) -> int:
    """Audits every file, says a line for each, and returns the exit code. `run` may raise OSError."""
    verdicts = []
    for path in files:
        verdict, text = _verdict(path, run)
        verdicts.append(verdict)
        offline = f"; {known_offline(path.name)}" if verdict is Verdict.NOT_AUDITED else ""
        say(f"{path.name}: {text}{offline}")
    first = (Verdict.VULNERABLE, Verdict.NOT_AUDITED)
    return next((verdict.value for verdict in first if verdict in verdicts), Verdict.SOUND.value)


def _verdict(path: Path, run: Callable[[Path], Ran]) -> tuple[Verdict, str]:
    try:
        ran = run(path)
        found: list[dict[str, Any]] = json.loads(ran.stdout)["dependencies"]
    except FileNotFoundError as error:
        return _not_audited(f"pip-audit is not installed: there is no {error.filename}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return _not_audited(str(error))
    except (ValueError, LookupError):
        return _not_audited(_last_line(ran.stderr) or "pip-audit printed nothing")
    skipped = [each["skip_reason"] for each in found if "skip_reason" in each]
    faults = [_fault(each, one) for each in found for one in each.get("vulns", ())]
    left_out = f"{len(skipped)} of {len(found)} pins were not looked up: {skipped[0]}" if skipped else ""
    if faults:
        return Verdict.VULNERABLE, "; ".join(filter(None, (f"VULNERABLE: {', '.join(faults)}", left_out)))
    return _not_audited(left_out) if skipped else (Verdict.SOUND, "sound")


def _not_audited(reason: str) -> tuple[Verdict, str]:
    return Verdict.NOT_AUDITED, f"NOT AUDITED: {reason}"


def _fault(pin: dict[str, Any], vulnerability: dict[str, Any]) -> str:
    fixed = " or ".join(vulnerability["fix_versions"]) or "no version"
    return f"{pin['name']} {pin['version']} has {vulnerability['id']}, fixed in {fixed}"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip()[:_REASON_CHARACTERS] if lines else ""


def pip_audit(program: Path) -> Callable[[Path], Ran]:
    """Returns a `run` for audit(). It raises OSError and TimeoutExpired."""

    def run(path: Path) -> Ran:
        # --disable-pip: the files list everything, with hashes, so nothing is to be resolved.
        how = ("--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off")
        command = (str(program), *how, "-r", str(path))
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)  # noqa: S603 - our own words
        return Ran(ran.stdout, ran.stderr)

    return run


if __name__ == "__main__":
    sys.exit(audit(pin_files(), pip_audit(Path(sys.argv[1])), lambda line: print(line, flush=True)))
