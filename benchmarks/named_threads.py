"""Runs the sidecar and writes which thread has which name: the system knows only thread ids.

    python -m benchmarks.named_threads serve …      writes {"name": number} to $BENCH_THREADS_FILE

The operating system gets thread names from Python 3.14 on only. The observing thread ends when it has found
the I/O thread.
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
        if threads.get(IO_THREAD) is not None:  # a thread is listed before it has an id
            path.write_text(json.dumps(threads))
            return
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    threading.Thread(target=_report, args=(Path(os.environ[FILE_VARIABLE]),), daemon=True).start()
    main()
