"""Before any metadata: each call that needs a broker is answered with the cause that the status has.

All calls that the OpenAPI document gives a 503 are asked, those of the dialects too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from client_core.errors import SslAuthenticationError
from service.process.admin import make_registry
from tests.support.documented_requests import documented_requests
from tests.support.simulated_sidecar import SimulatedSidecar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from tests.support.documented_requests import DocumentedRequest

#: Their 503 is about the spool's disk, or a shutdown.
WITHOUT_A_BROKER: Final = frozenset(
    {"requeueRecords", "spoolRecords", "putDaprLabel", "watchChanges", "pollChanges"}
)

ALL: Final = (1, 2, 3)
#: An attempt takes so long at most: the wait for metadata sees it end, or it does not.
SHORT_MS: Final = 500
LONG_MS: Final = 600_000


class Fault(NamedTuple):
    """A fault of all brokers since the start, with the name and the reason of its cause."""

    plant: Callable[[SimulatedSidecar], None]
    kafka_error: str
    reason: str | None
    attempt_ms: int = SHORT_MS


def _reject_certificates(sidecar: SimulatedSidecar) -> None:
    sidecar.network.rejection = SslAuthenticationError("TLS handshake failed: the authority is unknown")
    sidecar.network.rejecting.update(ALL)


def _refuse(sidecar: SimulatedSidecar) -> None:
    sidecar.network.down.update(ALL)


def _close(sidecar: SimulatedSidecar) -> None:
    sidecar.network.closing.update(ALL)


def _lose_names(sidecar: SimulatedSidecar) -> None:
    sidecar.names.is_down = True


def _reject(sidecar: SimulatedSidecar) -> None:
    sidecar.network.rejecting.update(ALL)


def _drop_packets(sidecar: SimulatedSidecar) -> None:
    sidecar.network.unreachable.update(ALL)


def _silence(sidecar: SimulatedSidecar) -> None:
    sidecar.brokers.silent.update(ALL)


FAULTS: Final = {
    "refused": Fault(_refuse, "NETWORK_EXCEPTION", "refused"),
    "closed": Fault(_close, "NETWORK_EXCEPTION", "closed"),
    "unresolved": Fault(_lose_names, "NETWORK_EXCEPTION", "unresolved"),
    "certificate": Fault(_reject_certificates, "NETWORK_EXCEPTION", "authentication"),
    "password": Fault(_reject, "SASL_AUTHENTICATION_FAILED", "authentication"),
    "firewall": Fault(_drop_packets, "NETWORK_EXCEPTION", "setup_timeout"),
    "firewall, first attempt": Fault(_drop_packets, "NETWORK_EXCEPTION", None, LONG_MS),
    "silent": Fault(_silence, "REQUEST_TIMED_OUT", "request_timeout"),
    "silent, first request": Fault(_silence, "REQUEST_TIMED_OUT", None, LONG_MS),
}


def asked() -> list[DocumentedRequest]:
    return [
        request
        for request in documented_requests()
        if "503" in request.statuses and request.operation_id not in WITHOUT_A_BROKER
    ]


def causes_in(document: Any) -> Iterator[tuple[str, str | None]]:
    """The names and reasons of all `cause` members of an answer."""
    if isinstance(document, list):
        for item in document:
            yield from causes_in(item)
    elif isinstance(document, dict):
        for name, member in document.items():
            if name != "cause":
                yield from causes_in(member)
            elif member is not None:
                yield member["kafka_error"], member.get("reason")


def is_native(answer: httpx.Response) -> bool:
    return answer.headers["content-type"] == "application/problem+json"


def disconnects(sidecar: SimulatedSidecar) -> set[str]:
    """The reasons of the connections that failed, from the metrics."""
    samples = [sample for family in make_registry(sidecar.app).collect() for sample in family.samples]
    return {
        sample.labels["reason"]
        for sample in samples
        if sample.name == "pilotfish_broker_disconnects_total" and sample.value
    }


@pytest.mark.parametrize("name", FAULTS)
async def test_every_call_that_needs_a_broker_has_the_cause_that_the_status_has(name: str) -> None:
    fault = FAULTS[name]
    expected = (fault.kafka_error, fault.reason)
    attempt_ms = str(fault.attempt_ms)
    sidecar = SimulatedSidecar(
        kafka={
            "max.block.ms": "1500",
            "request.timeout.ms": attempt_ms,
            "delivery.timeout.ms": str(max(fault.attempt_ms, 1_500)),
            "socket.connection.setup.timeout.ms": attempt_ms,
            "socket.connection.setup.timeout.max.ms": attempt_ms,
        },
        unknown_topic_wait_ms=1_500,
    )
    fault.plant(sidecar)

    answers: dict[str, str] = {}
    for request in asked():
        target = request.target("orders", sidecar.cluster_id)
        answer = await sidecar.ask(
            request.method,
            target,
            step_ms=50,
            headers=dict(request.headers),
            content=request.content("orders"),
        )
        is_named = f"The cause: {fault.kafka_error}" in answer.text
        if is_native(answer):
            is_named &= set(causes_in(answer.json())) == {expected}
        answers[request.operation_id] = "named" if is_named else answer.text
    assert answers == dict.fromkeys(answers, "named")

    status = (await sidecar.get("/v1/status")).json()
    assert status["slow"][0]["kafka_error"] == fault.kafka_error
    if fault.reason is not None:
        assert set(causes_in(status["nodes"])) == {expected}
        assert disconnects(sidecar) == {fault.reason}
    assert [list(causes_in(one)) for one in status["failed_requests"]] == [[expected]] * 20
    sidecar.close()
