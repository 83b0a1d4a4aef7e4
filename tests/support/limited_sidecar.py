"""`python -m tests.support.limited_sidecar LIMITS serve …`: a sidecar with other InternalLimits, as JSON.

Limits are no settings, so a process gets them from this program. `Sidecar(limits=…)` runs it.
"""

from __future__ import annotations

import json
import sys

from service.__main__ import main as pilotfish
from service.base.settings import InternalLimits


def main() -> None:
    limits = json.loads(sys.argv.pop(1))
    pilotfish(obj=InternalLimits(**limits))


if __name__ == "__main__":
    main()
