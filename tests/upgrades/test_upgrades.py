"""This tree reads the files of the tree before it: fixtures/, made by make_fixtures.py.

Renamed settings and metrics keep their old names for one version. Removed ones are refused by their names, or
are in CHANGELOG.md.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from service.base.settings import REMOVED
from service.base.settings_sources import SettingsError, load_settings
from tests.upgrades.make_fixtures import FIXTURES
from tests.upgrades.trees import SpoolState, Tree, read_spool, read_tokens, scrape, settings_file

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT: Final = Path(__file__).parents[2]
_TREE: Final = Tree(_ROOT)
_SETTINGS: Final[Mapping[str, Any]] = json.loads((FIXTURES / "settings.json").read_text())
_BOOTSTRAP: Final = ("bootstrap.servers=localhost:9092",)
#: Settings that need another one beside them.
_BESIDE: Final = {
    "api_tls_certificate_file": ("api_tls_key_file",),
    "api_tls_key_file": ("api_tls_certificate_file",),
    "api_tls_client_ca_file": ("api_tls_certificate_file", "api_tls_key_file"),
}


def test_its_spool_is_delivered(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    shutil.copytree(FIXTURES / "spool", spool)
    spool.chmod(0o700)
    expected = SpoolState(**json.loads((FIXTURES / "spool.json").read_text()))
    read_spool(_TREE, spool, expected, tmp_path)


def test_its_tokens_open_what_they_opened(tmp_path: Path) -> None:
    token = (FIXTURES / "token").read_text().strip()
    read_tokens(_TREE, (FIXTURES / "tokens.toml").read_text(), token, tmp_path)


def test_its_settings_are_each_read_or_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    for name in _SETTINGS:
        file.write_text(settings_file({other: _SETTINGS[other] for other in (name, *_BESIDE.get(name, ()))}))
        if name in REMOVED:
            with pytest.raises(SettingsError, match=rf"^{name} .* is no longer a setting, .*; remove it"):
                load_settings({}, _BOOTSTRAP, str(file))
        else:
            load_settings({}, _BOOTSTRAP, str(file))


def test_its_metrics_are_scraped_or_named_in_the_changelog(tmp_path: Path) -> None:
    changes = (_ROOT / "CHANGELOG.md").read_text()
    old = _families((FIXTURES / "metrics.txt").read_text())
    assert len(old) > 80
    gone = old - _families(scrape(_TREE, tmp_path))
    assert {name for name in gone if f"`{name}`" not in changes} == set()


def _families(text: str) -> set[str]:
    """Names and types."""
    return {" ".join(found) for found in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)}
