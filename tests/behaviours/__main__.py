"""`python -m tests.behaviours`: writes behaviours.md, and says what is missing; exit code 1 then."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.behaviours.catalogue import behaviours, java_test_classes
from tests.behaviours.scan import scan
from tests.behaviours.table import complaints, table

#: The table, beside this module.
TABLE_PATH: Final = Path(__file__).parent / "behaviours.md"
#: Where the tests are that bear the markers.
TESTS_FOLDER: Final = Path(__file__).parent.parent


def main() -> int:
    catalogue = behaviours(), java_test_classes(), scan(TESTS_FOLDER)
    TABLE_PATH.write_text(table(*catalogue))
    wrong = list(complaints(*catalogue))
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{TABLE_PATH.name}: written; {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
