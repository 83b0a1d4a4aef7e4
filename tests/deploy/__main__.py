"""`make check-deploy`: checks all deployed files with the tools that will read them.

    python -m tests.deploy               everything
    python -m tests.deploy image charts  these
    python -m tests.deploy --list        their names

A check is a module `check_NAME` of this folder with a function `check(say)`. It returns if all is well, and
raises BrokenPromiseError if something is not. It raises UnavailableError if a tool is missing: this prints a
line that begins with SKIPPED. Ends with 1 if a promise is broken, else with 0. The quick tests of this
folder, which `make test` runs, come first.
"""

from __future__ import annotations

import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tests.deploy.outcome import BrokenPromiseError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HERE: Final = Path(__file__).parent
_QUICK: Final = "tests"
#: The beginning of a line about a test that was skipped.
_SKIPPED: Final = "SKIPPED"


def names() -> list[str]:
    """The checks that there are, the quick tests first."""
    return [_QUICK, *sorted(path.stem.removeprefix("check_") for path in _HERE.glob("check_*.py"))]


@click.command()
@click.argument("wanted", nargs=-1, metavar="[CHECK]…")
@click.option("--list", "lists", is_flag=True, help="What checks there are.")
def main(wanted: tuple[str, ...], lists: bool) -> None:
    """Checks image, charts, rules and dashboard with the tools that will read them."""
    if lists:
        click.echo("\n".join(names()))
        return
    unknown = [name for name in wanted if name not in names()]
    if unknown:
        raise click.UsageError(f"there is no check {unknown[0]}; there are {', '.join(names())}")
    outcomes = [line for name in wanted or names() for line in _outcome(name)]
    click.echo("\n".join(["", *outcomes]))
    sys.exit(any(outcome.startswith("BROKEN") for outcome in outcomes))


def _outcome(name: str) -> list[str]:
    """Runs a check; a line that says how it ended, before it one for each part of it that was left out."""
    click.echo(f"== {name}")
    started_s = time.monotonic()
    skipped: list[str] = []

    def say(text: str) -> None:
        if text.startswith(_SKIPPED):
            skipped.append(text)
        click.echo(f"   {text}")

    try:
        _check(name)(say)
    except UnavailableError as error:
        return [*skipped, f"{_SKIPPED} {name}: {error}"]
    except BrokenPromiseError as error:
        return [*skipped, f"BROKEN  {name}: {error}"]
    return [*skipped, f"holds   {name}: {time.monotonic() - started_s:.0f} s"]


def _check(name: str) -> Callable[[Callable[[str], None]], None]:
    if name == _QUICK:
        return lambda _: _run_tests([sys.executable, "-m", "pytest", "-q", str(_HERE)])
    check: Callable[[Callable[[str], None]], None] = import_module(f"tests.deploy.check_{name}").check
    return check


def _run_tests(command: Sequence[str]) -> None:
    if subprocess.run(command, check=False).returncode:
        raise BrokenPromiseError("a test of tests/deploy fails: see the output above")


if __name__ == "__main__":
    main()
