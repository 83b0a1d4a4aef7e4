"""The delivery of one record as a small state machine: idempotence, deadlines, Idempotency-Key, spool's mark.

    explored(start, bounds)         every state that can be reached, and the labels that lead there
    after(state, label)             the states that a label may lead to; none: it may not happen

    try c n           a caller's n-th try reaches sidecar c
    submit c          the producer of c takes the record
    spool c           the spool of c submits it
    send c i          as write i: producer id, epoch and sequence
    store i           a leader appends it
    known i           a leader knows that write
    refuse i          a leader refuses it, for good: "no" may follow
    fail i            any other error
    ok c i, bad c i   an answer arrives
    answer c n what   the caller is answered: ack, spooled, no, unknown; left: it has left
    kill c            the sidecar ends
    cut c             its machine does: a mark that is not on the disk is lost
    forget            brokers forget what they knew of producers
    mark c            the mark of c's spool passes it: it was acknowledged
    aside c           the same of a dead letter
    requeue           a dead letter is put back: it is in the spool once more

The rest is hidden: a request or an answer is lost, a deadline passes. The model holds what the documents
promise and no more, so it allows what the product never does. test_delivery_model.py explores it whole within
bounds, and follows traces of simulated runs through it: what the product does must be a path of the model.

A sidecar that starts again is another sidecar. A record that is split or numbered again gets another write,
which needs that a broker refused its only one, forgot it, or refused it as too large ("forget", too).
"""

from __future__ import annotations

from collections import deque
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

Label = tuple["str | Hashable", ...]

#: Where a submission is: it waits, is under way, waits to be sent again, or, if its only write was refused,
#: anew; or has ended.
_OPEN: Final = ("queue", "flight", "again", "anew")
#: What the mark has passed: acknowledged, and a dead letter.
_PASSED: Final = "passed"
_ASIDE: Final = "dead letter"
#: In place of its submission: of a try that is over, and of one that is in the spool.
_OVER: Final = -1
_WRITTEN: Final = -2
_MAYBE_WRITTEN: Final = ("flight", "again", "anew", "acked", "unknown")


class Try(NamedTuple):
    """A try of a caller. `of`: the submission whose outcome it gets."""

    client: int
    number: int
    of: int | None
    reported: str = ""


class Submission(NamedTuple):
    """A record that a producer was given. `write`: as which it was sent last."""

    client: int
    by_spool: bool
    where: str = "queue"
    write: Hashable = None
    sends: int = 0


class State(NamedTuple):
    """See the module. `wire`: requests under way, by their write. `answers`: the same of ok, no or unsure."""

    keyed: bool = False
    spooled: bool = False
    tries: tuple[Try, ...] = ()
    submissions: tuple[Submission, ...] = ()
    wire: tuple[Hashable, ...] = ()
    answers: frozenset[tuple[Hashable, str]] = frozenset()
    log: tuple[Hashable, ...] = ()
    knows: frozenset[Hashable] = frozenset()
    dead: frozenset[int] = frozenset()
    forgot: bool = False
    #: How often it is in the spool.
    entries: int = 0
    #: How many of these the mark has passed.
    marked: int = 0


#: What a trace does not show, of a submission.
_HIDDEN: Final = ("lose answer", "deadline", "give up")


def after(state: State, label: Label) -> Iterator[State]:
    """Yields the states that a label may lead to."""
    match label:
        case ("try", int(c), int(n)):
            if c not in state.dead and all((t.client, t.number) != (c, n) for t in state.tries):
                yield state._replace(tries=(*state.tries, Try(c, n, _under_key(state, c))))
        case ("submit", int(c)):
            yield from _submitted(state, c)
        case ("spool", int(c)):
            mine = [s for s in state.submissions if s.client == c and s.by_spool]
            busy = sum(s.where not in ("no", "unknown", _PASSED, _ASIDE) for s in mine)
            if busy < state.entries - state.marked and c not in state.dead:
                yield state._replace(submissions=(*state.submissions, Submission(c, by_spool=True)))
        case ("send", int(c), write):
            yield from _sent(state, c, write)
        case (("store" | "known" | "refuse" | "fail") as kind, write):
            is_known = write in state.knows
            may = {"store": not is_known or state.forgot, "known": is_known, "refuse": True, "fail": True}
            if write in state.wire and may[kind]:
                yield from _handled(state, kind, write)
            if write in state.wire and kind == "store":  # by a leader that is cut off, and loses it again
                yield from _handled(state, "fail", write)
        case (("ok" | "bad") as kind, int(c), write):
            yield from _answered(state, c, write, kind)
        case ("answer", int(c), int(n), str(what)):
            yield from _reported(state, c, n, what)
        case (("kill" | "cut") as how, int(c)):
            if c not in state.dead:
                yield from _ended(state, c, may_lose_mark=how == "cut")
        case ("forget",):
            yield state._replace(forgot=True)
        case (("mark" | "aside") as how, int(c)):
            yield from _marked(state, c, ("acked",) if how == "mark" else ("acked", "no", "unknown"))
        case ("requeue",):
            yield state._replace(entries=state.entries + 1)
        case _:
            yield from _hidden(state, label)


def _hidden(state: State, label: Label) -> Iterator[State]:
    match label:
        case ("lose request", write):
            if write in state.wire:
                yield state._replace(wire=_without(state.wire, write))
        case ("lose answer", int(index)):  # its connection ends: the producer sends again
            one = state.submissions[index : index + 1]
            if one and one[0].where == "flight":
                yield _with(state, index, where="again")
        case ("write", int(at)):  # the spool has it on the disk, before or after its caller is answered
            one_try = state.tries[at]
            may = one_try.of is None and one_try.reported in ("", "unknown", "left")
            if may and one_try.client not in state.dead and not (state.keyed and _is_written(state, at)):
                tries = list(state.tries)
                tries[at] = one_try._replace(of=_WRITTEN)
                yield state._replace(tries=tuple(tries), entries=state.entries + 1)
        case ("deadline", int(index)):  # of the request: what was not sent is taken back
            one = state.submissions[index : index + 1]
            if one and one[0].where in ("queue", "anew"):
                yield _with(state, index, where="no")
        case ("give up", int(index)):  # delivery.timeout.ms, or no attempts are left
            one = state.submissions[index : index + 1]
            if one and one[0].where in ("flight", "again", "anew"):
                yield _with(state, index, where="unknown")


def hidden_labels(state: State) -> Iterator[Label]:
    """Yields what may happen in a state that no trace shows."""
    for index, one in enumerate(state.submissions):
        if one.where in _OPEN:
            yield from ((kind, index) for kind in _HIDDEN)
    if state.spooled:
        yield from (("write", at) for at, one in enumerate(state.tries) if one.of is None)


def _ended(state: State, client: int, *, may_lose_mark: bool) -> Iterator[State]:
    ended = state._replace(
        dead=state.dead | {client},
        tries=tuple(_left(t) if _waits(t, client) else t for t in state.tries),
        submissions=tuple(
            s._replace(where="gone") if s.client == client and s.where in _OPEN else s
            for s in state.submissions
        ),
    )
    yield ended
    while may_lose_mark:
        index = next(
            (
                i
                for i, s in enumerate(ended.submissions)
                if s.client == client and s.where in (_PASSED, _ASIDE)
            ),
            None,
        )
        if index is None:
            return
        ended = _with(ended, index, where="gone")._replace(marked=ended.marked - 1)
        yield ended


def _marked(state: State, client: int, of: Sequence[str]) -> Iterator[State]:
    """The mark passes an entry that this sidecar has sent itself: it does not know what another one has."""
    if state.marked == state.entries or client in state.dead:
        return
    for index, one in enumerate(state.submissions):
        if one.by_spool and one.client == client and one.where in of:
            where = _PASSED if one.where == "acked" else _ASIDE
            yield _with(state, index, where=where)._replace(marked=state.marked + 1)


def _handled(state: State, kind: str, write: Hashable) -> Iterator[State]:
    """A broker takes a request. It may answer that it is not sure of what it has stored."""
    log, knows = state.log, state.knows
    if kind == "store":
        log, knows = tuple(sorted((*log, write), key=repr)), knows | {write}
    others = frozenset(answer for answer in state.answers if answer[0] != write)
    for answer in {"refuse": ("no",), "fail": ("unsure",)}.get(kind, ("ok", "unsure")):
        yield state._replace(
            wire=_without(state.wire, write), log=log, knows=knows, answers=others | {(write, answer)}
        )


def _without(wire: tuple[Hashable, ...], write: Hashable) -> tuple[Hashable, ...]:
    at = wire.index(write)
    return (*wire[:at], *wire[at + 1 :])


def _tidy(state: State) -> State:
    """Forgets what has no consequences: answers that nobody waits for, writes that can't come, numbers."""
    under_way = {one.write for one in state.submissions if one.where == "flight"}
    may_come = {*state.wire, *(one.write for one in state.submissions if one.where in _OPEN)}
    return state._replace(
        answers=frozenset(answer for answer in state.answers if answer[0] in under_way),
        knows=state.knows & may_come,
        submissions=tuple(one if one.where in _OPEN else one._replace(sends=0) for one in state.submissions),
    )


def _with(state: State, index: int, **changes: object) -> State:
    ones = list(state.submissions)
    ones[index] = ones[index]._replace(**changes)  # type: ignore[arg-type]
    return state._replace(submissions=tuple(ones))


def _left(one: Try) -> Try:
    return one._replace(reported="left", of=one.of if one.of in (None, _WRITTEN) else _OVER)


def _waits(one: Try, client: int) -> bool:
    return one.client == client and not one.reported


def _under_key(state: State, client: int) -> int | None:
    """Returns the submission whose answer a key has, or will have: not one that ended unwritten."""
    if not state.keyed:
        return None
    for index, one in enumerate(state.submissions):
        if one.client == client and not one.by_spool and one.where in (*_OPEN, *_MAYBE_WRITTEN):
            return index
    return None


def _submitted(state: State, client: int) -> Iterator[State]:
    """Links the submission with a try that has none. Under a key there is one that may write at a time."""
    if client in state.dead or _under_key(state, client) is not None:
        return
    index = len(state.submissions)
    added = (*state.submissions, Submission(client, by_spool=False))
    for at, one in enumerate(state.tries):
        if one.client != client or one.of is not None or (one.reported and one.reported != "left"):
            continue
        tries = list(state.tries)
        tries[at] = one._replace(of=index)
        if state.keyed:  # those that wait for the same key get its outcome
            tries = [t._replace(of=index) if _waits(t, client) else t for t in tries]
        yield state._replace(submissions=added, tries=tuple(tries))


def _sent(state: State, client: int, write: Hashable) -> Iterator[State]:
    """A first attempt has a write of its own. Another has the same, unless brokers forgot or refused it."""
    is_new = write not in state.wire and all(one.write != write for one in state.submissions)
    for index, one in enumerate(state.submissions):
        if one.client != client or client in state.dead:
            continue
        first = one.where == "queue" and is_new
        anew = one.where == "anew" and is_new
        again = one.where in ("again", "anew") and (one.write == write or (is_new and state.forgot))
        if first or again or anew:
            sends = 1 if anew else min(one.sends + 1, 2)
            sent = _with(state, index, where="flight", write=write, sends=sends)
            # Answers of its connection before are nobody's.
            answers = frozenset(answer for answer in state.answers if answer[0] != write)
            wire = tuple(sorted((*state.wire, write), key=repr))
            yield sent._replace(wire=wire, answers=answers)


def _answered(state: State, client: int, write: Hashable, kind: str) -> Iterator[State]:
    said = {answer for of, answer in state.answers if of == write}
    found = False
    for index, one in enumerate(state.submissions):
        if (one.client, one.write, one.where) != (client, write, "flight"):
            continue
        found = True
        if kind == "ok":
            ends = ["acked"] if "ok" in said else []
        elif "no" in said:
            ends = ["anew", "no"] if one.sends == 1 else ["again", "unknown"]
        else:
            ends = ["again", "unknown"] if "unsure" in said else []
        yield from (_with(state, index, where=where) for where in ends)
    if not found:
        yield state  # it was given up meanwhile


def _is_written(state: State, at: int) -> bool:
    """Returns whether a try, or under its key another one of the same sidecar, is in the spool."""
    mine = state.tries[at]
    others = (one for one in state.tries if state.keyed and one.client == mine.client)
    return any(one.of == _WRITTEN for one in (mine, *others))


def _reported(state: State, client: int, number: int, what: str) -> Iterator[State]:
    for at, one in enumerate(state.tries):
        if (one.client, one.number) != (client, number):
            continue
        if one.reported:
            if what == "left":  # its sidecar was killed, and then its caller noticed
                yield state
            continue
        sub = None if one.of is None or one.of < 0 else state.submissions[one.of]
        may = {
            "left": True,
            "spooled": state.spooled and _is_written(state, at),
            "ack": sub is not None and sub.where == "acked",
            # Refused before it was submitted, taken back at its deadline, or refused at its first attempt.
            "no": (sub is None and not _is_written(state, at)) or (sub is not None and sub.where == "no"),
            "unknown": (sub is not None and sub.where in _MAYBE_WRITTEN)
            # A second try waits for the first one's outcome, in vain.
            or (sub is not None and state.keyed and sub.where == "queue")
            or (state.spooled and sub is None),
        }
        if may[what]:
            tries = list(state.tries)
            tries[at] = one._replace(reported=what, of=one.of if one.of in (None, _WRITTEN) else _OVER)
            yield state._replace(tries=tuple(tries))


# -- what must hold ------------------------------------------------------------------------------------------


def broken(state: State) -> str | None:
    """Returns which promise a state breaks; None: it keeps all."""
    reported = {one.reported for one in state.tries}
    if "ack" in reported and not state.log:
        return "an acknowledged record is lost"
    if any(one.where == "no" and one.write in state.log for one in state.submissions):
        return "a record is in the log of which was said: not written"
    if reported and reported <= {"no"} and state.log:
        return "every try was answered: not written, and it was"
    if len(set(state.log)) != len(state.log) and not state.forgot:
        return "one write is in the log twice, though brokers remember"
    writers = [s for s in state.submissions if s.where != "no"]
    if len(set(state.log)) > len(writers) and not state.forgot:
        return "there are more copies than submissions"
    for client in {one.client for one in state.submissions}:
        mine = [s for s in writers if s.client == client and not s.by_spool]
        if state.keyed and len(mine) > 1:
            return "a key wrote twice"
    if "spooled" in reported and not state.entries:
        return "a spooled record is in no spool"
    if any(one.where == _PASSED and one.write not in state.log for one in state.submissions):
        return "the mark is ahead"
    return None


def may_end(state: State) -> bool:
    """Returns whether all is over: nothing is under way, and what was spooled is delivered."""
    is_open = any(one.where in _OPEN for one in state.submissions) or any(
        not one.reported for one in state.tries
    )
    return not is_open and state.marked == state.entries


class Bounds(NamedTuple):
    """How much happens at most."""

    clients: int = 2
    tries: int = 2
    writes: int = 3
    kills: int = 1
    forgets: bool = True
    submissions: int = 3
    under_way: int = 2


def labels(state: State, bounds: Bounds) -> Iterator[Label]:
    """Yields every label that could be tried in a state within the bounds."""
    clients = range(bounds.clients)
    writes = range(min(len({s.write for s in state.submissions} - {None}) + 1, bounds.writes))
    if len(state.tries) < bounds.tries:
        yield from (("try", c, len(state.tries)) for c in clients)
    if len(state.submissions) < bounds.submissions:
        yield from ((kind, c) for kind in ("submit", "spool") for c in clients)
    yield from (("send", c, w) for c, w in product(clients, writes))
    yield from ((kind, w) for kind in ("store", "known", "refuse", "fail") for w in writes)
    yield from ((kind, c, w) for kind in ("ok", "bad") for c, w in product(clients, writes))
    whats = ("ack", "no", "unknown", "spooled", "left")
    yield from (("answer", t.client, t.number, what) for t in state.tries for what in whats if not t.reported)
    if len(state.dead) < bounds.kills:
        yield from (("cut" if state.spooled else "kill", c) for c in clients)
    if bounds.forgets and not state.forgot:
        yield ("forget",)
    if state.spooled:
        yield from ((kind, c) for kind in ("mark", "aside") for c in clients)
    yield from (("lose request", w) for w in writes)
    yield from hidden_labels(state)


def explored(start: State, bounds: Bounds) -> dict[State, list[tuple[Label, State]]]:
    """Returns every state that can be reached within the bounds, with its steps."""
    steps: dict[State, list[tuple[Label, State]]] = {}
    open_ones = deque([start])
    while open_ones:
        state = open_ones.popleft()
        if state in steps:
            continue
        found = steps[state] = [
            (label, following)
            for label in labels(state, bounds)
            for following in map(_tidy, after(state, label))
            if len(following.log) <= bounds.writes and len(following.wire) <= bounds.under_way
        ]
        open_ones.extend(following for _, following in found if following not in steps)
    return steps


def followed(states: set[State], label: Label) -> set[State]:
    """Returns the states that a trace may be in after a label, with what is hidden before it."""
    open_ones, known = deque(states), set(states)
    while open_ones:
        state = open_ones.popleft()
        for hidden in hidden_labels(state):
            for following in after(state, hidden):
                if following not in known:
                    known.add(following)
                    open_ones.append(following)
    return {following for state in known for following in after(state, label)}
