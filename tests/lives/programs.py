"""Programs in which a producer is forked, dropped, or never closed: each runs as a process of its own.

    PYTHONPATH=. python tests/lives/programs.py NAME BOOTSTRAP_SERVERS [setting=value ...]

`LIVES` has them by name. They need `client_core` and the standard library only, so that any Python runs them.
Records linger for minutes unless a life ends that, so the end of the process must send those that arrive. A
line on stdout says what happened. Children use `os.write`, because they must not print what the parent had
buffered.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from client_core import (
    AsyncKafkaProducer,
    FutureRecordMetadata,
    KafkaProducer,
    ProducerConfig,
    ProducerRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC: Final = "orders"
RECORDS: Final = 500

_KEPT: Final[list[KafkaProducer]] = []

#: A child that hangs is ended by the system, and its parent sees by which signal.
_CHILD_S: Final = 20


def settings() -> dict[str, str]:
    given = dict(pair.split("=", 1) for pair in sys.argv[3:])
    return {"bootstrap.servers": sys.argv[2], "linger.ms": "90000", "max.block.ms": "20000", **given}


def made() -> KafkaProducer:
    return KafkaProducer(ProducerConfig.from_mapping(settings()))


def started() -> KafkaProducer:
    """One that is kept for as long as the process lives."""
    producer = made()
    producer.start()
    _KEPT.append(producer)
    return producer


def send_all(producer: KafkaProducer) -> list[FutureRecordMetadata]:
    return [producer.send(ProducerRecord(TOPIC, b"%d" % number)) for number in range(RECORDS)]


def submit_all(producer: KafkaProducer) -> None:
    """Submits them before anything is known of the topic: they are parked."""
    now_ms = producer.clock.now_ms()
    producer.submit(
        TOPIC,
        [ProducerRecord(TOPIC, b"%d" % number) for number in range(RECORDS)],
        block_deadline_ms=now_ms + 20_000,
        deadline_ms=now_ms + 20_000,
        done=lambda result: None,
    )


# -- the end of the process ----------------------------------------------------------------------------------


def end_of_main() -> None:
    producer = started()
    send_all(producer)


def submitted() -> None:
    """Requests that still wait for metadata or memory count, too."""
    submit_all(started())


def sys_exit() -> None:
    producer = started()
    send_all(producer)
    sys.exit(3)


def uncaught_exception() -> None:
    producer = started()
    send_all(producer)
    raise LookupError("of the program's own")


def interrupted() -> None:
    producer = started()
    send_all(producer)
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        time.sleep(0.01)


def sent_by_a_thread_that_outlives_main() -> None:
    producer = started()
    main = threading.main_thread()

    def outlive() -> None:
        main.join()
        send_all(producer)

    threading.Thread(target=outlive).start()


def two_producers() -> None:
    one, other = started(), started()
    send_all(one)
    send_all(other)


def closed_in_time() -> None:
    producer = started()
    send_all(producer)
    report = producer.close(20_000)
    print("flushed", report.flushed)


def closed_too_soon() -> None:
    producer = started()
    send_all(producer)
    report = producer.close(50)
    print("flushed", report.flushed, sum(left.records for left in report.unacknowledged))


def _interrupt_when_sent(producer: KafkaProducer | AsyncKafkaProducer) -> None:
    while producer.status().in_flight_batches == 0:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)


def interrupted_close() -> None:
    producer = started()
    send_all(producer)
    threading.Thread(target=_interrupt_when_sent, args=(producer,), daemon=True).start()
    producer.close()


async def _close_what_is_sent() -> None:
    async with AsyncKafkaProducer(ProducerConfig.from_mapping(settings())) as producer:
        for number in range(RECORDS):
            await producer.send(ProducerRecord(TOPIC, b"%d" % number))
        threading.Thread(target=_interrupt_when_sent, args=(producer,), daemon=True).start()


def interrupted_close_of_an_async_producer() -> None:
    asyncio.run(_close_what_is_sent())


def interrupted_loop_of_an_async_producer() -> None:
    """Its task is not cancelled, and never continues."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_close_what_is_sent())


def interrupted_twice() -> None:
    """The second interrupt comes while the process ends, and waits for a broker that does not answer."""
    producer = started()
    send_all(producer)

    def interrupt_the_end() -> None:
        threading.main_thread().join()
        _interrupt_when_sent(producer)

    threading.Thread(target=interrupt_the_end, daemon=True).start()
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        time.sleep(0.01)


def stuck_in_a_callback() -> None:
    """The I/O thread never comes back, as in a DNS look-up that takes minutes."""
    producer = started()
    stuck = threading.Event()

    def never_return(_: FutureRecordMetadata) -> None:
        stuck.set()
        threading.Event().wait()

    producer.send(ProducerRecord(TOPIC, b"acknowledged"), never_return)
    stuck.wait()
    send_all(producer)


# -- garbage -------------------------------------------------------------------------------------------------


def _until_gone(producer: weakref.ref[KafkaProducer], thread: threading.Thread) -> None:
    thread.join(_CHILD_S)
    print("producer gone", producer() is None, "thread gone", not thread.is_alive())
    print("descriptors", _descriptors())


def _descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def _io_thread() -> threading.Thread:
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "pilotfish-io")
    return thread


def dropped() -> None:
    warnings.simplefilter("always", ResourceWarning)
    before = _descriptors()
    producer = made()
    producer.start()
    send_all(producer)
    thread, gone = _io_thread(), weakref.ref(producer)
    del producer
    print("before", before)
    _until_gone(gone, thread)


def dropped_in_a_cycle() -> None:
    warnings.simplefilter("always", ResourceWarning)
    before = _descriptors()
    producer = made()
    producer.start()
    cycle: dict[str, object] = {"producer": producer}
    cycle["itself"] = cycle
    send_all(producer)
    thread, gone = _io_thread(), weakref.ref(producer)
    del producer, cycle
    gc.collect()
    print("before", before)
    _until_gone(gone, thread)


def dropped_at_the_end() -> None:
    """Its records are on their way when the process ends."""
    producer = made()
    producer.start()
    send_all(producer)
    del producer


def dropped_before_it_was_started() -> None:
    warnings.simplefilter("always", ResourceWarning)
    before = _descriptors()
    producer = made()
    submit_all(producer)
    del producer
    print("before", before)
    print("descriptors", _descriptors())


# -- fork ----------------------------------------------------------------------------------------------------


def _fork() -> int:
    """os.fork; a child that hangs is ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 says that there are threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(_CHILD_S)
    return pid


def _end_of(pid: int) -> int:
    """The end of a child: its exit code, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def forked(child: Callable[[], None]) -> int:
    """What became of a child that does this and ends."""
    pid = _fork()
    if pid == 0:
        code = 1
        try:
            child()
            code = 0
        except BaseException:  # noqa: BLE001 - said on stderr, and by the exit code
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    return _end_of(pid)


def _refused(name: str, call: Callable[[], object]) -> None:
    try:
        returned = call()
    except Exception as error:  # noqa: BLE001 - the test judges which
        what = f"{type(error).__name__}: {error}"
    else:
        what = f"returned {returned!r}"
    os.write(1, f"child {name} {what}\n".encode())


def public_calls(producer: KafkaProducer) -> dict[str, Callable[[], object]]:
    """Each public call with arguments that the parent's producer takes. `close` is not among them."""
    record = ProducerRecord(TOPIC, b"of the child")
    reported: dict[str, Any] = {"deadline_ms": producer.clock.now_ms() + 20_000, "done": lambda result: None}
    return {
        "__enter__": producer.__enter__,
        "backlog": producer.backlog,
        "cache": lambda: producer.cache,
        "check": lambda: producer.check(TOPIC, [record]),
        "configure_topics": lambda: producer.configure_topics([TOPIC]),
        "describe_topic_configs": lambda: producer.describe_topic_configs(TOPIC, **reported),
        "flush": producer.flush,
        "list_offsets": lambda: producer.list_offsets(TOPIC, 0, **reported),
        "list_topics": lambda: producer.list_topics(**reported),
        "loop_work": producer.loop_work,
        "lower_metadata_max_age": lambda: producer.lower_metadata_max_age(1_000),
        "metrics": producer.metrics,
        "partitions_for": lambda: producer.partitions_for(TOPIC),
        "refresh_topics": lambda: producer.refresh_topics([TOPIC], **reported),
        "request_flush": lambda: producer.request_flush(lambda: None),
        "request_topics": lambda: producer.request_topics([TOPIC], **reported),
        "request_update": lambda: producer.request_update(**reported),
        "send": lambda: producer.send(record),
        "start": producer.start,
        "status": producer.status,
        "submit": lambda: producer.submit(
            TOPIC, [record], block_deadline_ms=reported["deadline_ms"], **reported
        ),
        "try_append": lambda: producer.try_append(record, FutureRecordMetadata()),
        "wait_on_metadata": lambda: producer.wait_on_metadata(TOPIC, None, 20_000),
        "wakeup": producer.wakeup,
    }


def _locks_of(thing: object) -> Iterator[Any]:
    """Every lock that is found from here without leaving the client."""
    seen, to_see = {id(thing)}, [thing]
    while to_see:
        for found in gc.get_referents(to_see.pop()):
            if id(found) in seen:
                continue
            seen.add(id(found))
            if type(found).__name__ in ("lock", "RLock"):
                yield found
            elif type(found).__module__.split(".")[0] in ("client_core", "builtins", "collections"):
                is_code = isinstance(found, type) or type(found).__name__ in ("function", "module", "code")
                if not is_code:
                    to_see.append(found)
            elif type(found) in (threading.Condition, threading.Event):
                to_see.append(found)


def _each_lock_held(producer: KafkaProducer) -> Callable[[], None]:
    """Has a thread take every free lock of the client; returns a function that releases them."""
    held, may_end = threading.Event(), threading.Event()
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("client_core")]
    locks = list({id(lock): lock for start in (producer, modules) for lock in _locks_of(start)}.values())

    def hold() -> None:
        taken = [lock for lock in locks if lock.acquire(blocking=False)]
        held.set()
        may_end.wait()
        for lock in taken:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert len(locks) > 5, locks

    def let_go() -> None:
        may_end.set()
        thread.join()

    return let_go


def forked_while_locks_are_held() -> None:
    producer = started()
    done = producer.send(ProducerRecord(TOPIC, b"acknowledged"))
    producer.flush()
    pending = producer.send(ProducerRecord(TOPIC, b"lingers"))
    ticket = producer.request_topics(
        ["nowhere"], deadline_ms=producer.clock.now_ms() + 60_000, done=lambda result: None, settle=False
    )

    def child() -> None:
        for name, call in public_calls(producer).items():
            _refused(name, call)
        _refused("future.done", pending.done)
        _refused("future.result", pending.result)
        _refused("future.exception", pending.exception)
        _refused("future.add_done_callback", lambda: pending.add_done_callback(lambda future: None))
        _refused("done_before.result", lambda: done.result().offset)
        _refused("ticket.cancel", ticket.cancel)
        _refused("repr", lambda: f"{producer!r} {pending!r}")
        _refused("close", producer.close)
        _refused("__exit__", lambda: producer.__exit__(None, None, None))
        own = started()
        _refused("own.send", lambda: own.send(ProducerRecord(TOPIC, b"of the child's own")).done())
        _refused("own.close", lambda: own.close(20_000).flushed)

    let_go = _each_lock_held(producer)
    code = forked(child)
    let_go()
    print("child ended with", code)
    ticket.cancel()
    producer.send(ProducerRecord(TOPIC, b"of the parent"))
    print("parent flushed", producer.close(20_000).flushed, "pending", pending.result(0).offset)


def forked_and_the_child_exits() -> None:
    """By sys.exit: the handlers at the exit of the parent run in the child, too."""
    producer = started()
    send_all(producer)
    pid = _fork()
    if pid == 0:
        sys.exit(7)
    print("child ended with", _end_of(pid))
    print("parent flushed", producer.close(20_000).flushed)


def forked_in_a_thread() -> None:
    producer = started()
    send_all(producer)
    codes: list[int] = []
    thread = threading.Thread(
        target=lambda: codes.append(forked(lambda: _refused("send", public_calls(producer)["send"])))
    )
    thread.start()
    thread.join()
    print("child ended with", *codes)
    print("parent flushed", producer.close(20_000).flushed)


def forked_in_a_callback() -> None:
    """On the I/O thread, whose copy is the child's only thread: it must not go on with the parent's work."""
    producer = started()
    codes: list[int] = []

    def callback(future: FutureRecordMetadata) -> None:
        pid = _fork()
        if pid == 0:
            _refused("send", public_calls(producer)["send"])
            return  # as nobody should
        codes.append(_end_of(pid))

    producer.send(ProducerRecord(TOPIC, b"first"), callback)
    producer.flush()
    send_all(producer)
    report = producer.close(20_000)
    print("child ended with", *codes)
    print("parent flushed", report.flushed)


def connections_end_with_the_parents_close() -> None:
    """The parent closes while the child lives: they end, for the child has let go of its copies."""
    producer = started()
    send_all(producer)
    producer.flush()
    reader, writer = os.pipe()

    def child() -> None:
        os.close(writer)
        os.read(reader, 1)  # until the parent closes its end, or has ended

    thread = threading.Thread(target=lambda: print("child ended with", forked(child)))
    thread.start()
    producer.close(20_000)
    print("closed", flush=True)
    sys.stdin.readline()
    os.close(writer)
    thread.join()


def forked_while_a_token_is_asked_for() -> None:
    producer = started()
    sys.stdin.readline()  # the endpoint has the question

    def child() -> None:
        os.write(1, f"child sockets {_sockets()}\n".encode())
        _refused("send", public_calls(producer)["send"])

    print("parent sockets", bool(_sockets()), flush=True)
    print("child ended with", forked(child), flush=True)


def _sockets() -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # of that folder itself
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [name for name in found if name.startswith("socket:")]


def own_producer_in_a_forked_child() -> None:
    """A child of os.fork that ends as a process does."""
    producer = started()
    pid = _fork()
    if pid == 0:
        send_all(started())
        sys.exit(0)
    print("child ended with", _end_of(pid))
    producer.close()


def _own_producer() -> None:
    send_all(started())


def _process(method: Literal["fork", "spawn", "forkserver"]) -> multiprocessing.process.BaseProcess:
    if method == "fork":
        return multiprocessing.get_context(method).Process(target=_own_producer)
    if method == "spawn":
        return multiprocessing.get_context(method).Process(target=_own_producer)
    return multiprocessing.get_context(method).Process(target=_own_producer)


def own_producer_in_multiprocessing(method: Literal["fork", "spawn", "forkserver"]) -> None:
    """Its children run no handlers at exit: they end by os._exit, behind finalizers of their own."""
    producer = started()
    process = _process(method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    process.join()
    print("child ended with", process.exitcode)
    producer.close()


LIVES: Final[dict[str, Callable[[], None]]] = {
    life.__name__: life
    for life in (
        *(end_of_main, submitted, sys_exit, uncaught_exception, interrupted, interrupted_twice),
        *(sent_by_a_thread_that_outlives_main, two_producers, closed_in_time, closed_too_soon),
        *(interrupted_close, stuck_in_a_callback, dropped, dropped_in_a_cycle, dropped_at_the_end),
        *(dropped_before_it_was_started, forked_while_locks_are_held, forked_and_the_child_exits),
        *(forked_in_a_thread, forked_in_a_callback, connections_end_with_the_parents_close),
        *(forked_while_a_token_is_asked_for, own_producer_in_a_forked_child),
        *(interrupted_close_of_an_async_producer, interrupted_loop_of_an_async_producer),
    )
} | {
    "own_producer_in_multiprocessing_fork": lambda: own_producer_in_multiprocessing("fork"),
    "own_producer_in_multiprocessing_spawn": lambda: own_producer_in_multiprocessing("spawn"),
    "own_producer_in_multiprocessing_forkserver": lambda: own_producer_in_multiprocessing("forkserver"),
}


if __name__ == "__main__":
    # A shell has its background jobs ignore SIGINT, and what they start inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    LIVES[sys.argv[1]]()
