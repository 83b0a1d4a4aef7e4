"""Idempotency-Key: a request that comes again is answered as the first was, and writes nothing more.

    the same key and request    while the first runs, waits for its outcome; later, gets the same answer
    another request             422

A key belongs to its caller and topic. What is remembered is what a retry must not do again: answers where
something was acknowledged, and outcomes that are unknown, until the client knows them after all. A failure of
which nothing was written is forgotten at once, so that the retry tries again. Memory is bounded in bytes and
keys: the oldest answers go first, those of the caller who holds most, and never one that has no outcome yet.

Event loop only. Source: draft-ietf-httpapi-idempotency-key-header-07; a key's text is RFC 8941's string, or
that string without its quotes, as many clients send it.
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

_PLACE: Final = "Idempotency-Key"

#: RFC 8941 section 3.3.3, and the same without quotes.
_QUOTED: Final = re.compile(rb'"((?:[ !#-\[\]-~]|\\["\\])+)"')
_BARE: Final = re.compile(rb"[!#-+\--:<-\[\]-~]+")
_MAX_KEY_LENGTH: Final = 255

#: What an acknowledged record takes in an answer: its three numbers with as many digits as they can have.
RECORD_BYTES: Final = 96
#: What else is held for a key, measured with CPython 3.11.
_ATTEMPT_BYTES: Final = 1_000

#: Says that the answer is that of an earlier request.
REPLAYED: Final = (b"pilotfish-replayed", b"true")


class Name(NamedTuple):
    """Whose key it is, and for what."""

    caller: str
    topic: str
    key: str


class KeyLimits(NamedTuple):
    """How much is remembered, and for how long after the outcome."""

    max_bytes: int
    max_keys: int
    hold_ms: int


def key_of(values: Sequence[bytes]) -> str:
    """The key that the header gives. Raises ProblemError (400)."""
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
    """What must be equal for a request to be the same: its body, and what of its head has a meaning."""
    digest = hashlib.sha256(b"%d:" % len(meaning) + meaning)
    digest.update(body)
    return digest.digest()


class Attempt:
    """The request that first brought a key. Ends once, with the answer that is true."""

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
        """Has `done` called with the answer: at once, where there is one."""
        if self.answer is not None:
            done(self.answer)
        else:
            self._joined.append(done)
        return _Joined(lambda: self._leave(done))

    def end(self, answer: Answer, *, keep: bool) -> None:
        """Tells those who joined, and remembers the answer or forgets the key. The first call holds."""
        if self.answer is not None:
            return
        self.answer = self._keys.ended(self, answer) if keep else answer
        if not keep:
            self._keys.forget(self)
        joined, self._joined = self._joined, []
        for done in joined:
            done(answer)

    def forget(self) -> None:
        """The request was refused before anything of it was taken on."""
        self._keys.forget(self)

    def _leave(self, done: Callable[[Answer], None]) -> None:
        if done in self._joined:
            self._joined.remove(done)


class _Joined:
    """A place among those who wait for an attempt's end; it may be left, and the attempt goes on."""

    __slots__ = ("_leave",)

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave

    def cancel(self) -> None:
        self._leave()


class IdempotencyKeys:
    """The keys of one sidecar."""

    def __init__(self, clock: Clock, limits: KeyLimits, forgotten_early: Counter) -> None:
        """`forgotten_early` counts answers that had to go before their time."""
        self._clock = clock
        self._limits = limits
        self._attempts: dict[Name, Attempt] = {}
        #: Those that have ended, by caller, the oldest first; and what each caller holds with them.
        self._ended: dict[str, OrderedDict[Name, Attempt]] = {}
        self._ended_bytes: dict[str, int] = {}
        self.bytes = 0
        self._forgotten_early = forgotten_early

    def __len__(self) -> int:
        return len(self._attempts)

    def find(self, name: Name, digest: bytes) -> Attempt | None:
        """The earlier request under this key. Raises a 422 where it was another one."""
        self._forget_expired()
        attempt = self._attempts.get(name)
        if attempt is not None and attempt.digest != digest:
            detail = f"key {name.key!r} was used for another request to topic {name.topic}; take a new key"
            raise refused(422, detail, place=_PLACE)
        return attempt

    def begin(self, name: Name, digest: bytes, records: int) -> Attempt:
        """Remembers a key that is new. Raises a 413 or 429 where its answer could not be remembered."""
        if not self._limits.max_bytes:
            raise refused(400, "is not served here (idempotency_max_bytes is 0)", place=_PLACE)
        needed_bytes = _ATTEMPT_BYTES + len(name.key) + records * RECORD_BYTES
        if needed_bytes > self._limits.max_bytes:
            detail = (
                f"the answer for {records} records would take {needed_bytes} bytes, more than can be "
                f"remembered ({self._limits.max_bytes}, idempotency_max_bytes); send fewer at once"
            )
            raise refused(413, detail, place=_PLACE)
        if not self._make_room(needed_bytes, 1):
            detail = f"too many requests with such a key are under way ({len(self)}); try again"
            raise refused(429, detail, place=_PLACE, retriable=True)
        attempt = self._attempts[name] = Attempt(self, name, digest, needed_bytes)
        self.bytes += needed_bytes
        return attempt

    def ended(self, attempt: Attempt, answer: Answer) -> Answer:
        """Attempt calls this: what is to be remembered of its answer."""
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
        """Attempt calls this: the key is as if it had never come."""
        del self._attempts[attempt.name]
        self.bytes -= attempt.bytes

    # -- what goes -------------------------------------------------------------------------------------------

    def _make_room(self, needed_bytes: int, needed_keys: int) -> bool:
        """Whether there is room for so much, once the oldest answers of who holds most are gone."""
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
    """What is remembered where thousands of failures, each with its reason, take more than there is."""
    detail = (
        f"the first answer under this key was {answer.status}, and too large to be remembered "
        "(idempotency_max_bytes)"
    )
    return answer_of_problem(Problem(504, detail, written="unknown", place=_PLACE))
