"""Topics whose requests must queue: as long as one waits for a topic, those that come later stand behind it.

So that nobody overtakes, a caller asks here before it appends for itself, and a request that must wait is
counted before it is handed to the I/O thread. Any thread; one lock for the counts, reads take none.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client_core.producer.pending_request import PendingRequest


class HeldBackTopics:
    """How many requests hold back later ones, by topic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[str, int] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._requests

    def hold_back(self, request: PendingRequest) -> None:
        """From now on requests for the topic stand behind this one. Called before it is handed over."""
        request.holds_back_others = True
        with self._lock:
            self._requests[request.topic] = self._requests.get(request.topic, 0) + 1

    def let_pass(self, request: PendingRequest) -> None:
        """This request holds nobody back any more, if it did. I/O thread only."""
        if not request.holds_back_others:
            return
        request.holds_back_others = False
        with self._lock:
            left = self._requests[request.topic] - 1
            if left:
                self._requests[request.topic] = left
            else:
                del self._requests[request.topic]
