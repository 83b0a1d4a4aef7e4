"""The sidecar, and which thread of it is which: the system knows them by number only.

    python -m benchmarks.named_threads serve …      writes {"name": number} to $BENCH_THREADS_FILE

Python 3.14 is the first that tells the system its threads' names. The thread that looks here ends when it has
found the I/O thread.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Final

from service.__main__ import main

FILE_VARIABLE: Final = "BENCH_THREADS_FILE"
IO_THREAD: Final = "pilotfish-io"
_LOOK_S: Final = 0.02


def _report(path: Path) -> None:
    while True:
        threads = {thread.name: thread.native_id for thread in threading.enumerate()}
        if threads.get(IO_THREAD) is not None:  # a thread is listed a moment before it has a number
            path.write_text(json.dumps(threads))
            return
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    threading.Thread(target=_report, args=(Path(os.environ[FILE_VARIABLE]),), daemon=True).start()
    main()
