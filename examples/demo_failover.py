"""Stops the leader of a partition under load, and shows what a caller of Pilotfish sees of it.

Run by `make demo-failover`. A sidecar runs on a Kafka inside its own process; one thread produces a record
after the other, one follows /v1/watch. Then the leader is stopped, another broker leads, the old one comes
back. At the end the records in Kafka are compared with those that were acknowledged.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

#: How long each part lasts, and how many records a second there are.
PART_S = 2.0
RATE = 100

TOPIC = "demo"


def ports(count: int) -> list[int]:
    bound = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    numbers = [one.getsockname()[1] for one in bound]
    for one in bound:
        one.close()
    return numbers


def ask(url: str, data: bytes | None = None) -> Any:
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@dataclass
class Load:
    """One caller that produces to partition 0."""

    api: str
    acknowledged: dict[int, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    slowest_ms: float = 0.0
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.is_over.wait(1 / RATE):
            body = json.dumps({"records": [{"value": number, "partition": 0}]}).encode()
            began = time.monotonic()
            try:
                answer = ask(f"{self.api}/v1/topics/{TOPIC}/records", body)
                self.acknowledged[number] = answer["results"][0]["offset"]
            except urllib.error.HTTPError as error:
                self.failed.append(f"{error.code} {json.load(error)['detail']}")
            self.slowest_ms = max(self.slowest_ms, (time.monotonic() - began) * 1000)
            number += 1

    def take_slowest_ms(self) -> float:
        """The longest answer since the last call."""
        slowest, self.slowest_ms = self.slowest_ms, 0.0
        return slowest


def watch(api: str, begun_s: float) -> None:
    """Prints the changes of leaders as /v1/watch reports them."""
    with urllib.request.urlopen(f"{api}/v1/watch?topics={TOPIC}", timeout=60) as stream:
        event = ""
        for line in stream:
            name, _, value = line.decode().strip().partition(": ")
            if name == "event":
                event = value
            elif name == "data" and event == "leader":
                after_s = time.monotonic() - begun_s
                for one in json.loads(value)["partitions"]:
                    if one["partition"] == 0:
                        leader, epoch = one["leader"], one["leader_epoch"]
                        print(f"  watch, at {after_s:.2f} s: broker {leader}, epoch {epoch}")


def part(load: Load, title: str) -> None:
    time.sleep(PART_S)
    print(f"{title}: {len(load.acknowledged)} acknowledged, longest answer {load.take_slowest_ms():.0f} ms")


def show(api: str, admin: str) -> int:
    begun_s = time.monotonic()
    load = Load(api)
    threading.Thread(target=watch, args=(api, begun_s), daemon=True).start()
    caller = threading.Thread(target=load.run)
    caller.start()
    leader = ask(f"{api}/v1/topics/{TOPIC}/leader?partition=0")["leader"]["id"]
    print(f"One caller sends {RATE} records a second to partition 0, which broker {leader} leads.")
    part(load, "all brokers run")
    print(f"Broker {leader} is stopped.")
    ask(f"{admin}/embedded/brokers/{leader}/stop", b"")
    part(load, f"broker {leader} is down")
    print(f"Broker {leader} comes back and leads again.")
    ask(f"{admin}/embedded/brokers/{leader}/start", b"")
    ask(f"{admin}/embedded/topics/{TOPIC}/partitions/0/leader/{leader}", b"")
    part(load, "all brokers run")
    load.is_over.set()
    caller.join()
    stored = ask(f"{admin}/embedded")["topics"][0]["partitions"][0]["end_offset"]
    offsets = set(load.acknowledged.values())
    lost = [offset for offset in offsets if offset >= stored]
    print(
        f"Acknowledged {len(load.acknowledged)} at {len(offsets)} offsets, failed {len(load.failed)}, "
        f"stored {stored}, lost {len(lost)}."
    )
    for failure in sorted(set(load.failed))[:3]:
        print(f"  failed: {failure}")
    return 1 if lost or len(offsets) != len(load.acknowledged) else 0


def main() -> int:
    api, admin = ports(2)
    command = [sys.executable, "-m", "service", "serve", "--embedded", "--log-level", "error"]
    command += ["--api-port", str(api), "--admin-port", str(admin)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sidecar:
        assert sidecar.stdout is not None
        try:
            for line in sidecar.stdout:
                if "Ctrl-C" in line:
                    return show(f"http://127.0.0.1:{api}", f"http://127.0.0.1:{admin}")
            return 1
        finally:
            sidecar.terminate()


if __name__ == "__main__":
    raise SystemExit(main())
