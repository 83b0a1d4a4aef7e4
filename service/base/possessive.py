"""A suffix that makes groups of regular expressions possessive, if Python supports it.

    re.compile(r'(?:[^"\\\\]++|\\\\.)*' + POSSESSIVE)

Before 3.11.5 a possessive group that can backtrack inside matches wrongly (CPython gh-106052); Debian 12 has
3.11.2. There the group is greedy. Both match the same if no alternative can begin like another one or like
the text after the group. All patterns here are written so. A possessive character class, `[^"]*+`, is correct
in all versions. tests/security/test_static_checks.py looks for possessive groups without this suffix.
"""

from __future__ import annotations

import sys
from typing import Final

POSSESSIVE: Final = "+" if sys.version_info >= (3, 11, 5) else ""
POSSESSIVE_BYTES: Final = POSSESSIVE.encode()
