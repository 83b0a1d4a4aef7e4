"""Names to addresses. Twins of ClientUtilsTest; the system's resolver is asked for literals only."""

from __future__ import annotations

import gc
from collections import deque
from threading import Event, Thread, current_thread
from typing import TYPE_CHECKING

import pytest

from client_core.client.host_resolver import (
    MOST_LOOK_UPS,
    BackgroundResolver,
    DefaultHostResolver,
    filter_preferred_addresses,
    resolve,
)
from tests.support.counted_work import kept_blocks
from tests.support.mock_resolver import MockResolver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence


@pytest.mark.behaviour("CONN-10")
@pytest.mark.java("ClientUtilsTest.FilterPreferredAddresses")
def test_filter_preferred_addresses_keeps_the_family_of_the_first_one() -> None:
    assert filter_preferred_addresses(["192.0.0.1", "::1", "192.0.0.2"]) == ("192.0.0.1", "192.0.0.2")
    assert filter_preferred_addresses(["::1", "192.0.0.1", "192.0.0.1"]) == ("::1",)


@pytest.mark.java("ClientUtilsTest.ResolveUnknownHostException")
def test_resolve_lets_the_resolvers_failure_through() -> None:
    with pytest.raises(OSError, match=r"some\.invalid\.hostname"):
        resolve("some.invalid.hostname", MockResolver())


@pytest.mark.java("ClientUtilsTest.ResolveDnsLookup")
def test_resolve_returns_every_address_of_the_name() -> None:
    resolver = MockResolver("198.51.100.0", "198.51.100.5")
    assert resolve("kafka.apache.org", resolver) == ("198.51.100.0", "198.51.100.5")


def test_a_resolver_that_finds_nothing_is_a_failure() -> None:
    class Empty(MockResolver):
        def resolve(self, host: str) -> tuple[str, ...]:
            return ()

    with pytest.raises(OSError, match="broker-1 has no address"):
        resolve("broker-1", Empty())


@pytest.mark.parametrize("literal", ["127.0.0.1", "::1"])
def test_the_systems_resolver_answers_a_literal_with_itself_once(literal: str) -> None:
    assert DefaultHostResolver().resolve(literal) == (literal,)


@pytest.mark.parametrize("name", ["a" * 64 + ".example", "a..example"])
def test_a_name_that_can_not_be_asked_for_is_an_oserror_too(name: str) -> None:
    with pytest.raises(OSError, match="is no host name"):
        DefaultHostResolver().resolve(name)


def test_the_own_machine_has_a_canonical_name() -> None:
    assert DefaultHostResolver().canonical_name("127.0.0.1")


# -- off the I/O thread --------------------------------------------------------------------------------------


class Threads:
    """What BackgroundResolver starts, run when the test says so."""

    def __init__(self, resolver: MockResolver, canonical: Collection[str] = ()) -> None:
        self.begun: deque[Callable[[], None]] = deque()
        self.wakeups = 0
        self.resolver = BackgroundResolver(resolver, self._woken, canonical, self.begun.append)

    def _woken(self) -> None:
        self.wakeups += 1

    def run_one(self) -> None:
        self.begun.popleft()()


def test_a_name_is_known_when_its_look_up_has_ended_and_woken_the_io_thread() -> None:
    threads = Threads(MockResolver("10.0.0.1", "10.0.0.2"))
    assert threads.resolver.resolve("broker-1") is None
    assert threads.resolver.resolve("broker-1") is None
    assert len(threads.begun) == 1
    assert threads.wakeups == 0
    threads.run_one()
    assert threads.wakeups == 1
    assert threads.resolver.resolve("broker-1") == ("10.0.0.1", "10.0.0.2")
    assert threads.resolver.name_at("broker-1", "10.0.0.1") == "broker-1"
    # The next time it is looked up anew: addresses change.
    assert threads.resolver.resolve("broker-1") is None
    assert len(threads.begun) == 1


@pytest.mark.parametrize("literal", ["10.0.0.1", "::1", "fe80::1%eth0"])
def test_an_address_is_its_own_answer_without_a_thread(literal: str) -> None:
    threads = Threads(MockResolver())
    assert threads.resolver.resolve(literal) == (literal,)
    assert not threads.begun


def test_a_name_that_is_not_known_is_an_error_each_time() -> None:
    threads = Threads(MockResolver())
    for _ in range(2):
        assert threads.resolver.resolve("broker-1") is None
        threads.run_one()
        with pytest.raises(OSError, match="Name or service not known"):
            threads.resolver.resolve("broker-1")


def test_a_resolver_with_a_bug_is_an_error_too() -> None:
    class Broken(MockResolver):
        def resolve(self, host: str) -> Sequence[str]:
            raise RuntimeError("a bug")

    threads = Threads(Broken())
    threads.resolver.resolve("broker-1")
    threads.run_one()
    assert threads.wakeups == 1
    with pytest.raises(OSError, match="a bug"):
        threads.resolver.resolve("broker-1")


def test_a_resolver_that_hangs_holds_one_thread_for_each_name_and_few_altogether() -> None:
    threads = Threads(MockResolver("10.0.0.1"))
    for _ in range(50):
        for number in range(20):
            assert threads.resolver.resolve(f"broker-{number}") is None
            threads.resolver.abandon(f"broker-{number}")
    assert len(threads.begun) == MOST_LOOK_UPS
    # When it answers at last, the others have their turn.
    threads.run_one()
    assert threads.resolver.resolve("broker-19") is None
    assert len(threads.begun) == MOST_LOOK_UPS


def test_who_asks_while_an_abandoned_look_up_goes_on_has_its_answer() -> None:
    threads = Threads(MockResolver("10.0.0.1"))
    threads.resolver.resolve("broker-1")
    threads.resolver.abandon("broker-1")
    assert threads.resolver.resolve("broker-1") is None
    threads.run_one()
    assert threads.resolver.resolve("broker-1") == ("10.0.0.1",)


def test_an_answer_that_came_when_nobody_waited_is_not_used_and_not_kept() -> None:
    resolver = MockResolver("10.0.0.1")
    threads = Threads(resolver)
    for host in ("broker-1", "broker-2"):
        threads.resolver.resolve(host)
        threads.resolver.abandon(host)
        threads.run_one()
    resolver.addresses = ("10.0.0.9",)
    assert threads.resolver.resolve("broker-1") is None
    assert repr(threads.resolver) == "<BackgroundResolver looks_up=['broker-1']>"
    threads.run_one()
    assert threads.resolver.resolve("broker-1") == ("10.0.0.9",)


def test_a_canonical_host_leads_to_the_addresses_of_its_canonical_names() -> None:
    resolver = MockResolver(
        hosts={
            "alias": ("10.0.0.1", "10.0.0.2"),
            "one.example": ("10.0.0.1",),
            "gone.example": (),
        },
        names={"10.0.0.1": "one.example", "10.0.0.2": "gone.example"},
    )
    threads = Threads(resolver, canonical=["alias"])
    assert threads.resolver.resolve("alias") is None
    threads.run_one()
    assert threads.resolver.resolve("alias") == ("10.0.0.1",)
    assert threads.resolver.name_at("alias", "10.0.0.1") == "one.example"


def test_a_canonical_host_none_of_whose_names_is_known_is_an_error() -> None:
    resolver = MockResolver(hosts={"alias": ("10.0.0.1",), "gone": ()}, names={"10.0.0.1": "gone"})
    threads = Threads(resolver, canonical=["alias"])
    threads.resolver.resolve("alias")
    threads.run_one()
    with pytest.raises(OSError, match="no canonical name of alias can be resolved"):
        threads.resolver.resolve("alias")


def test_where_no_thread_can_be_had_that_is_the_error() -> None:
    def no_thread(_: Callable[[], None]) -> None:
        raise OSError("no thread for the look-up: can't start new thread")

    resolver = BackgroundResolver(MockResolver("10.0.0.1"), lambda: None, start=no_thread)
    with pytest.raises(OSError, match="no thread"):
        resolver.resolve("broker-1")


def test_a_thread_of_its_own_resolves_and_keeps_no_process_from_ending() -> None:
    woken, asked_for = Event(), Event()
    threads: list[Thread] = []

    class Seen(MockResolver):
        def resolve(self, host: str) -> Sequence[str]:
            threads.append(current_thread())
            assert asked_for.wait(30)
            return super().resolve(host)

    resolver = BackgroundResolver(Seen("10.0.0.1"), woken.set)
    assert resolver.resolve("broker-1") is None
    asked_for.set()
    assert woken.wait(30)
    assert resolver.resolve("broker-1") == ("10.0.0.1",)
    assert [thread.daemon for thread in threads] == [True]


def test_of_hosts_without_canonical_names_nothing_is_kept() -> None:
    class Forgetful(MockResolver):
        def resolve(self, host: str) -> Sequence[str]:
            return ("10.0.0.1",)

    threads = Threads(Forgetful("10.0.0.1"))

    def look_up_many() -> None:
        for number in range(300):
            threads.resolver.resolve(f"broker-{number}")
            threads.run_one()
            threads.resolver.resolve(f"broker-{number}")
        gc.collect()

    assert kept_blocks(look_up_many) < 300
