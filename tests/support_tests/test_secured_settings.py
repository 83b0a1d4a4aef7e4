"""A mounted secret changes as a kubelet changes it: all of its files at once, by one link."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.support.secured_settings import MountedSecret

if TYPE_CHECKING:
    from pathlib import Path


def test_a_swap_changes_all_files_behind_the_same_paths(tmp_path: Path) -> None:
    mounted = MountedSecret(tmp_path / "mounted", {"user": "old user", "password": "old"})
    paths = {name: mounted.path(name) for name in ("user", "password")}
    assert {name: path.read_text() for name, path in paths.items()} == {"user": "old user", "password": "old"}
    inode = os.stat(paths["password"]).st_ino

    mounted.swap({"user": "new user", "password": "new"})

    assert {name: path.read_text() for name, path in paths.items()} == {"user": "new user", "password": "new"}
    assert os.stat(paths["password"]).st_ino != inode


def test_a_file_that_a_swap_leaves_out_leads_nowhere(tmp_path: Path) -> None:
    mounted = MountedSecret(tmp_path / "mounted", {"user": "u", "password": "p"})
    mounted.swap({"user": "u"})
    assert not mounted.path("password").exists()
    assert mounted.path("user").read_text() == "u"
