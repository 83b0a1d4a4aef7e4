"""Each of the client's events reaches everyone who wants them, and the app's own sinks are among them."""

from __future__ import annotations

from client_core import Errors
from client_core import events as e
from service.process.app import FanOut
from tests.support.http_app import HttpApp
from tests.support.recorded_events import RecordedEvents


class Wanting(RecordedEvents):
    """Records, and wants only these kinds."""

    def __init__(self, *kinds: type) -> None:
        super().__init__()
        self.kinds = kinds
        self.asked: list[type] = []

    def wants(self, kind: type) -> bool:
        self.asked.append(kind)
        return kind in self.kinds


def test_every_sink_is_told_what_it_wants_in_order() -> None:
    both, one, none = Wanting(e.NodeReady, e.NodeConnecting), Wanting(e.NodeReady), Wanting()
    sink = FanOut(both, one, none)
    reported: list[e.Event] = [e.NodeReady(1), e.NodeConnecting(1), e.NodeReady(2)]
    for event in reported:
        sink.emit(event)
    assert both.events == reported
    assert one.events == [e.NodeReady(1), e.NodeReady(2)]
    assert none.events == []
    assert none.asked == [e.NodeReady, e.NodeConnecting], "once for each kind"


def test_an_event_of_the_client_is_counted_and_explains_slowness() -> None:
    web = HttpApp()
    web.app.events.emit(e.ProduceFinished("orders", 0, 1, 7, 100, 5, 0, Errors.NONE))
    assert web.get("/v1/status").json()["produce"]["records"] == 7
    (family,) = [f for f in web.app.client_metrics.collect() if f.name == "pilotfish_records_sent"]
    assert family.samples[0].value == 7
