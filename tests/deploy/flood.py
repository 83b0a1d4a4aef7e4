"""`python -m tests.deploy.flood PORT TOPIC CALLERS SECONDS`: callers that send a megabyte, again and again.

Prints as JSON how often each status was answered; "none" is a connection that broke.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections import Counter
from typing import Final

#: A produce request waits so long; the flood's callers ask again at once, whatever they got.
_TIMEOUT_MS: Final = 8_000
_PAUSE_S: Final = 0.1


def main() -> None:
    """Ends when all callers have their last answer."""
    port, topic, callers, seconds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    body = json.dumps({"records": [{"value": "x" * 10_000}] * 100, "value_format": "text"})
    path = f"/v1/topics/{topic}/records?timeout_ms={_TIMEOUT_MS}"
    until_s = time.monotonic() + seconds
    answers: list[str] = []

    def call() -> None:
        while time.monotonic() < until_s:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_MS / 1_000 * 4)
                connection.request("POST", path, body, {"Content-Type": "application/json"})
                answers.append(str(connection.getresponse().status))
                connection.close()
            except (OSError, http.client.HTTPException):
                answers.append("none")
            time.sleep(_PAUSE_S)

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(Counter(answers)))


if __name__ == "__main__":
    main()
