"""Remembers requests by Idempotency-Key: a repeated request gets the first answer and writes nothing.

    the same key and request    waits for the first request's outcome, or gets its answer
    another request             422

A key belongs to a caller and a topic. A request stays remembered if a retry could write its records again:
some were acknowledged, or the outcome is unknown. If nothing was written, its key is forgotten at once, and a
retry is a new attempt. Memory is bounded in bytes and keys. The caller that holds the most loses its oldest
answer first. A request without an outcome is never dropped.

Event loop only. Source: draft-ietf-httpapi-idempotency-key-header-07. A key is a string of RFC 8941, or the
same without quotes, as many clients send it.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from client_core import Clock, Ticket
from service.base.fast_metrics import Counter
from service.produce.produce_answers import Answer, answer_of_problem
from service.wire.errors import Problem, refused
from service.wire.reasons import KEY_REUSED

_PLACE: Final = "Idempotency-Key"

#: RFC 8941 section 3.3.3, and the same without quotes.
_QUOTED_KEY: Final = r'"((?:[ !#-\[\]-~]|\\["\\])+)"'
_BARE_KEY: Final = r"[!#-+\--:<-\[\]-~]+"
_QUOTED: Final = re.compile(_QUOTED_KEY.encode())
_BARE: Final = re.compile(_BARE_KEY.encode())
#: The header's value, for the OpenAPI document.
KEY_PATTERN: Final = f"^({_QUOTED_KEY}|{_BARE_KEY})$"
_MAX_KEY_LENGTH: Final = 255

#: Maximum size of an acknowledged record in an answer: its three numbers with the most digits possible.
RECORD_BYTES: Final = 96
#: What a record's topic takes there besides its name, if each record names its own.
TOPIC_BYTES: Final = len('"topic":"",')
#: Other memory per key, measured with CPython 3.11.
_ATTEMPT_BYTES: Final = 1_000

#: Marks the answer of an earlier request.
REPLAYED: Final = (b"pilotfish-replayed", b"true")


class Name(NamedTuple):
    """A key with its caller and topic; the topic is empty if each record names its own."""

    caller: str
    topic: str
    key: str


class KeyLimits(NamedTuple):
    """Limits of what is remembered. `hold_ms` counts from the outcome."""

    max_bytes: int
    max_keys: int
    hold_ms: int


def key_of(values: Sequence[bytes]) -> str:
    """Returns the key from the values of the header. Raises ProblemError (400)."""
    if len(values) != 1:
        raise refused(400, "is given twice", place=_PLACE)
    value = values[0].strip(b" \t")
    quoted = _QUOTED.fullmatch(value)
    if quoted is not None:
        value = re.sub(rb"\\(.)", rb"\1", quoted[1])
    elif _BARE.fullmatch(value) is None:
        raise refused(400, "must be a string of visible ASCII, in quotes or without", place=_PLACE)
    if len(value) > _MAX_KEY_LENGTH:
        raise refused(400, f"is longer than {_MAX_KEY_LENGTH} characters", place=_PLACE)
    return value.decode("ascii")


def digest_of(meaning: bytes, body: bytes) -> bytes:
    """Returns a digest that is equal for equal requests: of the body, and of the head's `meaning`."""
    digest = hashlib.sha256(b"%d:" % len(meaning) + meaning)
    digest.update(body)
    return digest.digest()


class Attempt:
    """The first request under a key. Ends once, with its final answer."""

    __slots__ = ("_joined", "_keys", "answer", "bytes", "digest", "ended_ms", "name")

    def __init__(self, keys: IdempotencyKeys, name: Name, digest: bytes, reserved_bytes: int) -> None:
        self._keys = keys
        self._joined: list[Callable[[Answer], None]] = []
        self.name: Final = name
        self.digest: Final = digest
        self.bytes = reserved_bytes
        self.answer: Answer | None = None
        self.ended_ms = 0

    def join(self, done: Callable[[Answer], None]) -> Ticket:
        """Calls `done` with the answer, at once if there is one."""
        if self.answer is not None:
            done(self.answer)
        else:
            self._joined.append(done)
        return _Joined(lambda: self._leave(done))

    def end(self, answer: Answer, *, keep: bool) -> None:
        """Sends the answer to all that joined, and keeps or forgets it. Only the first call counts."""
        if self.answer is not None:
            return
        self.answer = self._keys.ended(self, answer) if keep else answer
        if not keep:
            self._keys.forget(self)
        joined, self._joined = self._joined, []
        for done in joined:
            done(answer)

    def forget(self) -> None:
        """Forgets the key: the request was refused before any of it was accepted."""
        self._keys.forget(self)

    def _leave(self, done: Callable[[Answer], None]) -> None:
        if done in self._joined:
            self._joined.remove(done)


class _Joined:
    """The ticket of a request that joined. Cancelling it does not end the attempt."""

    __slots__ = ("_leave",)

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave

    def cancel(self) -> None:
        self._leave()


class IdempotencyKeys:
    """The keys of one sidecar."""

    def __init__(self, clock: Clock, limits: KeyLimits, forgotten_early: Counter) -> None:
        """`forgotten_early` counts answers that are dropped before `hold_ms`."""
        self._clock = clock
        self._limits = limits
        self._attempts: dict[Name, Attempt] = {}
        #: Ended attempts by caller, the oldest first, and the bytes that they hold.
        self._ended: dict[str, OrderedDict[Name, Attempt]] = {}
        self._ended_bytes: dict[str, int] = {}
        #: The sum of the `bytes` of all attempts: reserved, and then held by their answers.
        self.bytes = 0
        self._forgotten_early = forgotten_early

    def __len__(self) -> int:
        return len(self._attempts)

    def __contains__(self, name: Name) -> bool:
        """Returns whether a request under this key runs, or may have written records."""
        self._forget_expired()
        return name in self._attempts

    def find(self, name: Name, digest: bytes) -> Attempt | None:
        """Returns the earlier request under this key, or None. Raises ProblemError (422) if it differs."""
        self._forget_expired()
        attempt = self._attempts.get(name)
        if attempt is not None and attempt.digest != digest:
            where = f"topic {name.topic}" if name.topic else "/v1/records"
            detail = (
                f"key {name.key!r} was used for another request to {where}: repeat a request with the same "
                "body, and use a new key for new records"
            )
            raise refused(422, detail, place=_PLACE, reason=KEY_REUSED)
        return attempt

    def begin(self, name: Name, digest: bytes, records: int, topics_bytes: int = 0) -> Attempt:
        """Remembers a new key. Raises ProblemError: 400 (keys are off), 413 (too long an answer), 429.

        `topics_bytes`: what the answer has besides `records`, if each of them names its topic.
        """
        if not self._limits.max_bytes:
            raise refused(400, "is not supported here (idempotency_max_bytes is 0)", place=_PLACE)
        needed_bytes = _ATTEMPT_BYTES + len(name.key) + records * RECORD_BYTES + topics_bytes
        if needed_bytes > self._limits.max_bytes:
            detail = (
                f"the answer for {records} records would take {needed_bytes} bytes, more than can be "
                f"remembered ({self._limits.max_bytes}, idempotency_max_bytes); send fewer at once"
            )
            raise refused(413, detail, place=_PLACE)
        if not self._make_room(needed_bytes, 1):
            detail = f"too many requests with an Idempotency-Key are in progress ({len(self)}); try again"
            raise refused(429, detail, place=_PLACE, retriable=True)
        attempt = self._attempts[name] = Attempt(self, name, digest, needed_bytes)
        self.bytes += needed_bytes
        return attempt

    def ended(self, attempt: Attempt, answer: Answer) -> Answer:
        """Returns the answer to remember, and counts its bytes. Called by Attempt."""
        caller = attempt.name.caller
        held_bytes = _ATTEMPT_BYTES + len(attempt.name.key) + len(answer.body)
        if held_bytes > self._limits.max_bytes:
            answer = _too_large(answer)
            held_bytes = _ATTEMPT_BYTES + len(attempt.name.key) + len(answer.body)
        self.bytes += held_bytes - attempt.bytes
        attempt.bytes = held_bytes
        self._make_room(0, 0)
        attempt.ended_ms = self._clock.now_ms()
        self._ended.setdefault(caller, OrderedDict())[attempt.name] = attempt
        self._ended_bytes[caller] = self._ended_bytes.get(caller, 0) + held_bytes
        return answer

    def forget(self, attempt: Attempt) -> None:
        """Removes the key. Called by Attempt."""
        del self._attempts[attempt.name]
        self.bytes -= attempt.bytes

    # -- dropping --------------------------------------------------------------------------------------------

    def _make_room(self, needed_bytes: int, needed_keys: int) -> bool:
        """Drops the oldest answers of the callers that hold most; returns whether there is room now."""
        limits = self._limits
        while self.bytes + needed_bytes > limits.max_bytes or len(self) + needed_keys > limits.max_keys:
            if not self._ended:
                return False
            caller = max(self._ended_bytes, key=self._ended_bytes.__getitem__)
            self._drop_oldest(caller)
            self._forgotten_early.add()
        return True

    def _forget_expired(self) -> None:
        expired_ms = self._clock.now_ms() - self._limits.hold_ms
        for caller in list(self._ended):
            while (ended := self._ended.get(caller)) and next(iter(ended.values())).ended_ms < expired_ms:
                self._drop_oldest(caller)

    def _drop_oldest(self, caller: str) -> None:
        name, attempt = self._ended[caller].popitem(last=False)
        del self._attempts[name]
        self.bytes -= attempt.bytes
        self._ended_bytes[caller] -= attempt.bytes
        if not self._ended[caller]:
            del self._ended[caller], self._ended_bytes[caller]


def _too_large(answer: Answer) -> Answer:
    """Returns what to remember instead of an answer that is too large, such as a list of many failures."""
    detail = (
        f"the first answer under this key was {answer.status}, and too large to be remembered "
        "(idempotency_max_bytes)"
    )
    return answer_of_problem(Problem(504, detail, written="unknown", place=_PLACE))
