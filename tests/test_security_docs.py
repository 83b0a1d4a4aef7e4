"""docs/security.md shows settings that exist, go together, and are all that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from client_core import OPTIONS
from service.base.settings_sources import load_settings

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
BLOCK: Final = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLES: Final = BLOCK.findall(PAGE)
VARIABLE: Final = re.compile(r"PILOTFISH_KAFKA_[A-Z_]+")

#: Its name is no secret, and is shown as a value.
NOT_LISTED: Final = {"sasl.oauthbearer.client.credentials.client.id"}


@pytest.mark.parametrize("number", range(len(TABLES)))
def test_each_example_goes_together(number: int, tmp_path: Path) -> None:
    path = tmp_path / "pilotfish.toml"
    path.write_text(TABLES[number])
    settings = load_settings({}, ("bootstrap.servers=localhost:9092",), str(path))
    config = settings.producer_config()
    assert config.unused == ()
    assert [remark.text for remark in config.remarks] == []


def test_every_file_that_may_change_is_listed_and_no_other() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+\.file)` \| `(PILOTFISH_\w+)` \|$", PAGE, re.MULTILINE))
    expected = {
        option.file_name: "PILOTFISH_KAFKA_" + option.file_name.replace(".", "_").upper()
        for option in OPTIONS
        if option.file_name is not None and option.name not in NOT_LISTED
    }
    assert rows == expected


def test_every_setting_that_the_page_names_exists() -> None:
    known = {name for option in OPTIONS for name in (option.name, option.file_name) if name}
    variables = {"PILOTFISH_KAFKA_" + name.replace(".", "_").upper() for name in known}
    assert {name for name in VARIABLE.findall(PAGE) if not name.endswith("_")} <= variables
    named = set(re.findall(r"`((?:ssl|sasl|security)\.[a-z.]+[a-z])`", PAGE))
    brokers_own = {"ssl.client.auth"}
    assert named - brokers_own <= known
