"""The quantifier suffix that makes a repeated group of a regular expression possessive, where Python can.

    re.compile(r'(?:[^"\\\\]++|\\\\.)*' + POSSESSIVE)

Before 3.11.5 a possessive group whose inside can backtrack matches wrongly (CPython gh-106052); Debian 12 has
3.11.2. There the group is greedy. That matches the same where no alternative can begin as another one or as
what follows the group: every pattern here is written so. A possessive character class, `[^"]*+`, is sound
everywhere. tests/security/test_static_checks.py looks for groups that are possessive by themselves.
"""

from __future__ import annotations

import sys
from typing import Final

POSSESSIVE: Final = "+" if sys.version_info >= (3, 11, 5) else ""
POSSESSIVE_BYTES: Final = POSSESSIVE.encode()
