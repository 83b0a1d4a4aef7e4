"""What a harmed way does with bytes, in steps: no socket and no clock."""

from __future__ import annotations

from tests.support.harmed_flow import Break, Delay, Finish, HarmedFlow, Harms, Pass, ResetAfter, Step, Wait

_IDLE = Wait(None)


def _flow(*pieces: bytes, harms: Harms | None = None, now_s: float = 0.0) -> HarmedFlow:
    """A way of answers on which this has come."""
    flow = HarmedFlow("answers", 1)
    for piece in pieces:
        flow.receive(piece, harms or Harms(), now_s)
    return flow


def _steps(flow: HarmedFlow, harms: Harms, now_s: float = 0.0) -> list[Step]:
    """All steps up to the first that waits or ends."""
    steps = [flow.next_step(harms, now_s)]
    while isinstance(steps[-1], Pass):
        steps.append(flow.next_step(harms, now_s))
    return steps


def test_unharmed_bytes_go_on_as_they_came_and_then_the_end() -> None:
    flow = _flow(b"one", b"two")
    flow.end()
    assert _steps(flow, Harms()) == [Pass(b"one", alone=False), Pass(b"two", alone=False), Finish()]


def test_a_reset_by_the_source_is_told_after_what_came_before() -> None:
    flow = _flow(b"one")
    flow.end(by_reset=True)
    assert _steps(flow, Harms()) == [Pass(b"one", alone=False), Break(by_harm=False)]


def test_delayed_bytes_wait_for_their_time() -> None:
    harms = Harms(delay=Delay(latency_ms=200))
    flow = _flow(b"late", harms=harms, now_s=10.0)
    (waiting,) = _steps(flow, harms, now_s=10.0)
    assert isinstance(waiting, Wait)
    assert waiting.seconds is not None
    assert abs(waiting.seconds - 0.2) < 1e-9
    assert _steps(flow, harms, now_s=10.21) == [Pass(b"late", alone=False), _IDLE]


def test_delayed_bytes_go_on_at_once_when_the_delay_ends() -> None:
    flow = _flow(b"late", harms=Harms(delay=Delay(latency_ms=200)))
    assert _steps(flow, Harms()) == [Pass(b"late", alone=False), _IDLE]


def _pauses(seed: int) -> list[float]:
    """When each of ten bytes that come together goes on."""
    harms = Harms(delay=Delay(latency_ms=10, jitter_ms=100, seed=seed))
    flow = _flow(*[bytes([number]) for number in range(10)], harms=harms)
    now_s, pauses, passed = 0.0, [], b""
    while flow.held_bytes:
        step = flow.next_step(harms, now_s)
        if isinstance(step, Pass):
            passed += step.data
            pauses.append(now_s)
        else:
            assert isinstance(step, Wait)
            now_s += step.seconds or 0.0
    assert passed == bytes(range(10))
    return pauses


def test_jitter_keeps_the_order_and_is_the_seeds() -> None:
    assert _pauses(seed=1) == _pauses(seed=1)
    assert _pauses(seed=1) != _pauses(seed=2)
    assert _pauses(seed=1) == sorted(_pauses(seed=1))


def test_a_limited_way_passes_a_pieces_worth_and_waits() -> None:
    harms = Harms(bytes_per_second=1_000)
    flow = _flow(bytes(100))
    now_s, passed = 0.0, 0
    while flow.held_bytes:
        step = flow.next_step(harms, now_s)
        if isinstance(step, Pass):
            passed += len(step.data)
            assert len(step.data) == 20
        else:
            assert isinstance(step, Wait)
            now_s += step.seconds or 0.0
    assert passed == 100
    # The last piece goes when those before it have had their time.
    assert abs(now_s - 0.08) < 1e-9


def test_a_limit_below_a_piece_passes_byte_by_byte() -> None:
    flow = _flow(b"ab")
    assert flow.next_step(Harms(bytes_per_second=1), 0.0) == Pass(b"a", alone=False)
    assert flow.next_step(Harms(bytes_per_second=1), 0.0) == Wait(1.0)


def test_what_is_swallowed_is_gone_and_so_is_the_end() -> None:
    flow = _flow(b"lost")
    flow.end()
    swallowing = Harms(swallowed=frozenset({"answers"}))
    assert _steps(flow, swallowing) == [_IDLE]
    assert (flow.held_bytes, flow.swallowed_bytes, flow.is_broken) == (0, 4, True)


def test_only_the_named_direction_is_swallowed() -> None:
    flow = _flow(b"kept")
    assert _steps(flow, Harms(swallowed=frozenset({"requests"}))) == [Pass(b"kept", alone=False), _IDLE]
    assert not flow.is_broken


def test_a_stalled_way_loses_nothing() -> None:
    flow = _flow(b"held")
    assert _steps(flow, Harms(is_stalled=True)) == [_IDLE]
    assert flow.held_bytes == 4
    assert _steps(flow, Harms()) == [Pass(b"held", alone=False), _IDLE]


def test_dribbled_bytes_go_on_in_packets_of_that_size() -> None:
    harms = Harms(bytes_per_packet=2)
    assert _steps(_flow(b"abcde"), harms) == [
        Pass(b"ab", alone=True),
        Pass(b"cd", alone=True),
        Pass(b"e", alone=True),
        _IDLE,
    ]


def test_a_reset_comes_in_the_middle_of_what_came_together() -> None:
    harms = Harms(reset_after=ResetAfter(3, "answers"))
    assert _steps(_flow(b"abcde"), harms) == [Pass(b"abc", alone=False), Break(by_harm=True)]


def test_a_reset_that_is_due_at_the_end_of_a_frame_comes_a_byte_earlier() -> None:
    harms = Harms(reset_after=ResetAfter(5, "answers"))
    assert _steps(_flow(b"ab", b"cde"), harms) == [
        Pass(b"ab", alone=False),
        Pass(b"cd", alone=False),
        Break(by_harm=True),
    ]
    assert _steps(_flow(b"abcd", b"e"), harms) == [Pass(b"abcd", alone=False), Break(by_harm=True)]


def test_a_reset_waits_for_its_bytes() -> None:
    harms = Harms(reset_after=ResetAfter(10, "answers"))
    flow = _flow(b"abcde")
    assert _steps(flow, harms) == [Pass(b"abcde", alone=False), _IDLE]
    flow.receive(b"fghijk", harms, 0.0)
    assert _steps(flow, harms) == [Pass(b"fghij", alone=False), Break(by_harm=True)]


def test_bytes_before_the_count_begins_bring_no_reset() -> None:
    harms = Harms(reset_after=ResetAfter(3, "answers", count_from_s=1))
    flow = _flow(b"abcde")
    assert _steps(flow, harms, now_s=7.0) == [Pass(b"abcde", alone=False), _IDLE]
    flow.receive(b"fghij", harms, 7.9)
    assert _steps(flow, harms, now_s=7.9) == [Pass(b"fghij", alone=False), _IDLE]
    flow.receive(b"klmno", harms, 8.0)
    assert _steps(flow, harms, now_s=8.0) == [Pass(b"klm", alone=False), Break(by_harm=True)]


def test_bytes_of_the_other_direction_bring_no_reset() -> None:
    harms = Harms(reset_after=ResetAfter(1, "requests"))
    assert _steps(_flow(b"abc"), harms) == [Pass(b"abc", alone=False), _IDLE]


def test_a_new_reset_counts_anew() -> None:
    flow = _flow(b"abc")
    assert _steps(flow, Harms(reset_after=ResetAfter(5, "answers"))) == [Pass(b"abc", alone=False), _IDLE]
    again = Harms(reset_after=ResetAfter(5, "answers"))
    flow.receive(b"defg", again, 0.0)
    assert _steps(flow, again) == [Pass(b"defg", alone=False), _IDLE]


def test_harms_come_together() -> None:
    harms = Harms(delay=Delay(latency_ms=100), bytes_per_packet=2, reset_after=ResetAfter(3, "answers"))
    flow = _flow(b"abcde", harms=harms)
    assert isinstance(flow.next_step(harms, 0.0), Wait)
    assert _steps(flow, harms, now_s=1.0) == [
        Pass(b"ab", alone=True),
        Pass(b"c", alone=True),
        Break(by_harm=True),
    ]
