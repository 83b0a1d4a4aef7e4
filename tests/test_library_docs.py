"""Every piece of code in docs/library.md runs and is typed; the wheel says so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from hatchling.builders.wheel import WheelBuilder

from client_core.testing import FakeCluster

ROOT: Final = Path(__file__).parent.parent
CODE: Final = re.compile(r"^## (?P<title>[^\n]+)$|^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS: Final = '"localhost:9092"'
PAGE: Final = ROOT / "docs" / "library.md"


def snippets() -> dict[str, str]:
    """Title to code."""
    found: dict[str, str] = {}
    title = PAGE.stem
    for match in CODE.finditer(PAGE.read_text(encoding="utf-8")):
        if match["title"]:
            title = match["title"]
            continue
        assert title not in found, f"{title} has two pieces of code"
        found[title] = match["code"]
    return found


SNIPPETS: Final = snippets()

#: The output when the code runs: enough to check that it did what the page says.
PRINTED: Final = {
    "Send a record and wait for it": r"^orders-\d at offset 0$",
    "Send many": r"^1000 written, 0 failed$",
    "Callbacks": r"^written at 0$",
    "Errors": (
        r"^linger\.sm: linger\.sm is not a setting of Kafka's producer; did you mean linger\.ms\?\n"
        r"Topic no-such-topic not present in metadata after 500 ms\. Caused by: .+\n"
        r"Invalid partition: -1\. .+$"
    ),
    "Look at the cluster": (
        r"^0 \S+ \(id \d\)\n1 .*\n2 .*\n3 .*\nfake-\w+ \[1, 2, 3\]\nthe key goes to partition \d$"
    ),
    "Events and status": r"^running \d+ \['ready'.*\]\n[1-9]\d* refreshes$",
    "Close": r"^$",
    "asyncio": r"^\d 0\n\d+\n\(RecordMetadata\(topic='orders', .*\),\)$",
    "Keys and values of other types": r"^orders \d None$",
    "Without blocking, for other event loops": r"^0\n1$",
    "Settings": r"^$",
}


def test_every_piece_of_code_is_expected_to_print_something_or_nothing() -> None:
    assert sorted(SNIPPETS) == sorted(PRINTED)


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_the_code_runs_and_prints_what_the_page_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=4)
        code = SNIPPETS[name].replace(ADDRESS, repr(cluster.bootstrap_servers))
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    assert re.search(PRINTED[name], capsys.readouterr().out.strip()), name


def test_the_code_is_typed_strictly(tmp_path: Path) -> None:
    for number, code in enumerate(SNIPPETS.values()):
        (tmp_path / f"snippet_{number}.py").write_text(code)
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")),
            *("--follow-imports", "silent", "--no-error-summary"),
            *("--cache-dir", str(ROOT / ".cache" / "mypy-of-the-docs")),
            *(str(path) for path in sorted(tmp_path.glob("*.py"))),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stdout + checked.stderr == ""


def test_the_wheel_says_that_it_is_typed() -> None:
    in_wheel = {included.distribution_path for included in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert "client_core/py.typed" in in_wheel
    assert "client_core/__init__.py" in in_wheel


def test_the_library_needs_nothing_of_the_sidecar() -> None:
    program = (
        "import sys, client_core\n"
        "heavy = {'service', 'fastapi', 'pydantic', 'uvicorn', 'starlette', 'prometheus_client', 'msgspec'}\n"
        "assert not heavy & {name.partition('.')[0] for name in sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_test_kits_page_shows_a_test_that_passes() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    names["test_an_order_survives_the_end_of_its_leader"]()


def test_the_test_kits_page_names_methods_that_there_are() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    for name in re.findall(r"`([a-z_]+)`", page.partition("| to | call |")[2]):
        assert callable(getattr(FakeCluster, name, None)), name
