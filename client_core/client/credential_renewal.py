"""Replaces connections when credentials or certificates change.

New connections always use the current credentials. Open connections keep their old ones, because a broker
never asks for them again. So a certificate that is replaced because its key leaked would stay in use.
`next_step` decides without side effects, `CredentialRenewal` acts:

    all connections use the current credentials           REST   check again later
    nothing is held, and the pause is not over            REST   check again when it is
    a trial or a new connection is under way              WAIT
    a connection is held, with requests in flight         WAIT   for responses: none is lost, none resent
    the new credentials have not been tried               TRY    on a connection beside the open ones
    they were accepted, and the pause is over             HOLD   send nothing more to the least busy node
    the held or chosen connection has nothing in flight   RENEW  close it, and reconnect at once

The trial comes first because a changed secret may be wrong, or newer than the broker's. If the broker refuses
it, working connections stay open, and the trial is repeated later. The pause limits the load on a broker with
thousands of clients, and on a producer with many brokers. Order and idempotence hold, because a connection
is closed only after all its requests are answered.

A session is re-authenticated (KIP-368) with the credentials of its connection, whatever the files hold by
then: they may be another user's, or wrong. A file that changes again within SETTLE_MS is ignored until it
settles: a new user name may still lack its new password.

I/O thread only. Java's client has no counterpart: it reads credentials once.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.client.node_connection_state import TRIAL_NODE_ID, ConnectionState, NodeConnectionState
from client_core.cluster import Node
from client_core.events import SecretReloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from random import Random

    from client_core.client.connection_ends import ConnectionEnds
    from client_core.client.connection_states import ClusterConnectionStates
    from client_core.client.in_flight_requests import InFlightRequests
    from client_core.events import EventSink
    from client_core.network.selectable import CredentialsVersion, Selectable

_log = logging.getLogger(__name__)

#: Between two checks of the files, some microseconds each. A kubelet takes up to a minute to update them.
LOOK_MS: Final = 2_000

#: New credentials are used after this time without a change: enough to write a few files.
SETTLE_MS: Final = 1_000

#: Between two renewals, with 50 % jitter so that clients do not synchronize.
PAUSE_MS: Final = 1_000

#: Between two trials after a refusal.
RETRY_MS: Final = 10_000

#: The setting name in SecretReloaded events.
_NAME: Final = "credentials"


class Stale(NamedTuple):
    """A READY connection with outdated credentials."""

    node_id: int
    in_flight: int


class Act(Enum):
    """What to do next; the table is in the module's docstring."""

    REST = auto()
    WAIT = auto()
    TRY = auto()
    HOLD = auto()
    RENEW = auto()


class Step(NamedTuple):
    """What to do next, and to which connection."""

    act: Act
    node_id: int | None = None


_REST: Final = Step(Act.REST)
_WAIT: Final = Step(Act.WAIT)


def next_step(
    stale: Sequence[Stale],
    *,
    held: int | None,
    is_under_way: bool,
    is_proved: bool,
    may_begin: bool,
    tried_last: int | None = None,
) -> Step:
    """Returns the next step. Pure.

    `is_under_way`: a trial or a new connection has no outcome yet. `is_proved`: a broker accepted the current
    credentials. `may_begin`: the pause is over. `tried_last`: the node of the last trial; others are tried
    before it.
    """
    if is_under_way:
        return _WAIT
    if not stale:
        return _REST
    for connection in stale:
        if connection.node_id == held:
            return _WAIT if connection.in_flight else Step(Act.RENEW, held)
    if not may_begin:
        return _REST
    if not is_proved:
        at = min(stale, key=lambda one: (one.node_id == tried_last, one.in_flight, one.node_id))
        return Step(Act.TRY, at.node_id)
    chosen = min(stale, key=lambda one: (one.in_flight, one.node_id))
    return Step(Act.HOLD if chosen.in_flight else Act.RENEW, chosen.node_id)


class CredentialRenewal:
    """Renews the connections of one NetworkClient, which calls it in every poll."""

    def __init__(
        self,
        credentials: Callable[[], CredentialsVersion],
        selector: Selectable,
        states: ClusterConnectionStates,
        ends: ConnectionEnds,
        in_flight: InFlightRequests,
        nodes: Callable[[], Collection[Node]],
        random: Random,
        events: EventSink,
    ) -> None:
        """`credentials` checks the files; `nodes` returns metadata's nodes."""
        self._credentials = credentials
        self._selector = selector
        self._states = states
        self._ends = ends
        self._in_flight = in_flight
        self._nodes = nodes
        self._random = random
        self._events = events
        # `_seen`: the credentials at the last check, unchanged since `_seen_ms`. `_target`: the last settled
        # ones.
        self._seen = self._target = credentials()
        self._seen_ms = 0
        self._look_ms = 0
        self._begins_ms = 0
        self._is_proved = False
        self._is_refusal_reported = False
        self._tried: int | None = None
        self._is_trying = False
        self._held: int | None = None
        self._renewing: int | None = None
        self._next_ms = 0

    def __repr__(self) -> str:
        return f"<CredentialRenewal {self._target} held={self._held} renewing={self._renewing}>"

    @property
    def _is_busy(self) -> bool:
        """Whether a step is under way and waits for network I/O."""
        return self._is_trying or self._held is not None or self._renewing is not None

    def is_due(self, now_ms: int) -> bool:
        """Returns whether `turn` must be called: a check is due, or a step is under way."""
        return now_ms >= self._next_ms or self._is_busy

    def wait_ms(self, now_ms: int) -> int:
        """Returns the longest time, in ms, that a poll may wait."""
        return max(self._next_ms - now_ms, 0)

    def turn(self, now_ms: int) -> None:
        """Checks for new credentials, evaluates the last step, and takes the next one."""
        if now_ms >= self._look_ms:
            self._look(now_ms)
        self._judge_trial(now_ms)
        self._judge_renewal(now_ms)
        stale = self._stale()
        step = next_step(
            stale,
            held=self._held,
            is_under_way=self._is_trying or self._renewing is not None,
            is_proved=self._is_proved,
            may_begin=now_ms >= self._begins_ms,
            tried_last=self._tried,
        )
        self._take(step, now_ms)
        self._next_ms = self._look_ms
        if stale and not self._is_busy:
            self._next_ms = min(self._look_ms, self._begins_ms)

    # -- checks ----------------------------------------------------------------------------------------------

    def _look(self, now_ms: int) -> None:
        version = self._credentials()
        if version != self._seen:
            self._seen, self._seen_ms = version, now_ms
        if version != self._target and now_ms - self._seen_ms >= SETTLE_MS:
            self._target = version
            self._is_proved = self._is_refusal_reported = False
            self._begins_ms, self._tried = now_ms, None
            self._let_go()  # of a connection held for the previous credentials
        self._look_ms = now_ms + (LOOK_MS if version == self._target else SETTLE_MS)

    def _stale(self) -> list[Stale]:
        found = []
        for node in self._states.nodes:
            made_with = self._selector.credentials_of(node.node_id)
            if node.state is ConnectionState.READY and made_with is not None and self._is_older(made_with):
                found.append(Stale(node.node_id, self._in_flight.count(node.node_id)))
        if all(one.node_id != self._held for one in found):
            self._let_go()  # it ended by itself
        return found

    def _let_go(self) -> None:
        """Releases the held connection."""
        if self._held is not None:
            self._states.release(self._held)
            self._held = None

    def _is_older(self, made_with: CredentialsVersion) -> bool:
        return made_with.tls < self._target.tls or made_with.sasl < self._target.sasl

    def _judge_trial(self, now_ms: int) -> None:
        trial = self._states.get(TRIAL_NODE_ID) if self._is_trying else None
        if trial is None or trial.is_preparing:
            return
        self._is_trying = False
        if trial.state is ConnectionState.READY:
            _log.info(
                "Node %s accepts the new credentials; its connections are replaced one by one", self._tried
            )
            self._is_proved = True
            if self._is_refusal_reported:
                self._events.emit(SecretReloaded(_NAME, None))
        else:
            self._begins_ms = now_ms + RETRY_MS
            self._report_refusal(trial)
        self._ends.end_trial(now_ms)

    def _report_refusal(self, trial: NodeConnectionState) -> None:
        """Logs a refusal once per change, if the broker sent it; other failures at DEBUG."""
        reason = trial.last_error
        if self._is_refusal_reported or trial.authentication_error is None:
            _log.debug("The new credentials could not be tried at node %s: %s", self._tried, reason)
            return
        self._is_refusal_reported = True
        _log.warning(
            "Node %s rejects the new credentials: %s; open connections keep the old ones",
            self._tried,
            reason,
        )
        self._events.emit(SecretReloaded(_NAME, f"refused by node {self._tried}: {reason}"))

    def _judge_renewal(self, now_ms: int) -> None:
        if self._renewing is None:
            return
        node = self._states.get(self._renewing)
        if node is not None and node.is_preparing:
            return
        self._renewing = None
        self._begins_ms = now_ms + round(PAUSE_MS * (0.5 + self._random.random()))
        if node is not None and node.authentication_error is not None:
            self._is_proved = False  # some brokers may lack them yet: renew no more before a trial

    # -- actions ---------------------------------------------------------------------------------------------

    def _take(self, step: Step, now_ms: int) -> None:
        match step.act:
            case Act.REST | Act.WAIT:
                return
            case Act.HOLD:
                self._held = step.node_id
                self._states.hold(_given(step.node_id))
            case Act.TRY:
                self._try(_given(step.node_id), now_ms)
            case Act.RENEW:
                self._held = None
                self._renew(_given(step.node_id), now_ms)

    def _try(self, node_id: int, now_ms: int) -> None:
        self._tried = node_id
        at = self._states.get(node_id)
        assert at is not None  # `_stale` has just found it
        _log.info("New credentials are in use: trying them at node %d", node_id)
        self._is_trying = True
        self._ends.begin_trial(Node(TRIAL_NODE_ID, at.host, at.port), now_ms)

    def _renew(self, node_id: int, now_ms: int) -> None:
        node = next((node for node in self._nodes() if node.id == node_id), None)
        if node is None:  # no longer in metadata, so not needed
            self._ends.leave(node_id, now_ms)
            return
        self._renewing = node_id
        self._ends.renew(node, now_ms)


def _given(node_id: int | None) -> int:
    assert node_id is not None
    return node_id
