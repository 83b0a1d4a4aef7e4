"""The public API: the names that users import, and that importing has no side effects."""

from __future__ import annotations

import subprocess
import sys

import client_core


def test_every_name_that_is_promised_is_there() -> None:
    missing = [name for name in client_core.__all__ if not hasattr(client_core, name)]
    assert missing == []
    assert len(set(client_core.__all__)) == len(client_core.__all__)


def test_importing_it_has_no_side_effect() -> None:
    program = (
        "import logging, threading\n"
        "import client_core\n"
        "assert threading.active_count() == 1\n"
        "assert not logging.getLogger().handlers and not logging.getLogger('client_core').handlers\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
