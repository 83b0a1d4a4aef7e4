"""An app that knows no Kafka, for the plays of a kubelet: it produces through its sidecar and keeps a diary.

    python -m tests.deploy.play_app        settings in the environment, as a container has them

    APP_API_PORT, APP_TOPIC     where records go, over one connection that is kept as long as it is let
    APP_DIARY                   a file to which the value of each acknowledged record is added, as a line
    APP_RECORDS                 how many to produce and then end, as a Job does; without it, until SIGTERM
    APP_LAST_RECORDS            how many more after SIGTERM: what an app does while it drains itself
    APP_PATIENT                 if set: asks again, as Retry-After says, where nothing was written (429, 503)

Ends with 1 and a line on standard error when a record is not acknowledged: in none of the plays may one fail.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import IO, Final

#: Between two records: some are always under way, and a play of seconds has hundreds.
_PAUSE_S: Final = 0.01
_TIMEOUT_S: Final = 60.0


class App:
    """One caller of the sidecar."""

    def __init__(self, port: int, topic: str, diary: IO[str], count: int) -> None:
        """`count`: how many the diary has already, from an app that was started before."""
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
        self._path = f"/v1/topics/{topic}/records"
        self._diary = diary
        self._count = count
        self._is_patient = "APP_PATIENT" in os.environ

    def produce(self) -> None:
        """One record, whose value is its number; ends the process when it is not acknowledged."""
        body = json.dumps({"records": [{"value": str(self._count)}], "value_format": "text"})
        while True:
            self._connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            said = answer.read().decode()
            if answer.status == 200:
                break
            if not self._is_patient or answer.status not in (429, 503):
                sys.exit(f"record {self._count}: {answer.status} {said}")
            time.sleep(int(answer.getheader("Retry-After", "1")))
        self._diary.write(f"{self._count}\n")
        self._diary.flush()
        self._count += 1


def main() -> None:
    """Produces until SIGTERM comes or its work is done."""
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    records = os.environ.get("APP_RECORDS")
    with Path(os.environ["APP_DIARY"]).open("a+", encoding="ascii") as diary:
        diary.seek(0)
        count = len(diary.readlines())
        app = App(int(os.environ["APP_API_PORT"]), os.environ["APP_TOPIC"], diary, count)
        if records is not None:
            for _ in range(int(records)):
                app.produce()
            return
        while not ending.wait(_PAUSE_S):
            app.produce()
        for _ in range(int(os.environ.get("APP_LAST_RECORDS", "0"))):
            app.produce()


if __name__ == "__main__":
    main()
