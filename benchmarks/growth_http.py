"""Measures growth over known topics over HTTP: wrk asks sidecars that know different numbers of topics.

One sidecar per size, all running, with the same fake broker, which is idle meanwhile. wrk loads them in turn.
`ten of them` is the same work at each size. `each in turn` walks all topics, for so long that it asks for
more than the sidecar keeps answers for: most answers have to be made.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.growth_topics import PARTITIONS_PER_TOPIC, asked, topic_name
from benchmarks.load import await_answer, free_port, process, require_wrk, wrk
from benchmarks.measure import rss_bytes
from client_core.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECONDS: Final = 1
#: In one second a walk does not leave the 20,000 answers that are kept from the walk before.
WALK_SECONDS: Final = 4

#: Prepared before wrk begins, so that choosing a request costs almost nothing.
_SCRIPT: Final = """
local requests, turn = {}, 0
function init(arguments)
  for number = 0, %(count)d - 1 do
    local path = string.format("/v1/topics/topic-%%06d/leader?partition=0", math.floor(number * %(step)s))
    requests[number] = wrk.format("GET", path)
  end
end
function request()
  turn = (turn + 1) %% %(count)d
  return requests[turn]
end
"""


def ask_sidecars(sizes: Sequence[int], rounds: int) -> dict[str, dict[int, list[float]]]:
    """Loads each size once a round: ten topics; for the smallest and the largest size also each topic."""
    require_wrk()
    ten: dict[int, list[float]] = {size: [] for size in sizes}
    each: dict[int, list[float]] = {min(sizes): [], max(sizes): []}
    memory: dict[int, list[float]] = {size: [] for size in sizes}
    with (
        tempfile.TemporaryDirectory() as name,
        FakeCluster(brokers=1) as kafka,
        contextlib.ExitStack() as stack,
    ):
        for number in range(max(sizes)):
            kafka.create_topic(topic_name(number), partitions=PARTITIONS_PER_TOPIC)
        folder = Path(name)
        sidecars = {size: stack.enter_context(_sidecar(kafka, folder, size)) for size in sizes}
        scripts = {size: _script(folder, size, len(asked(size))) for size in sizes}
        walks = {size: _script(folder, size, size) for size in each}
        for size, (_, pid) in sidecars.items():
            memory[size].append(rss_bytes(pid) / 1e6)
        turns = [(size, scripts[size], ten, SECONDS) for size in sizes]
        turns += [(size, walks[size], each, WALK_SECONDS) for size in each]
        for _ in range(rounds):
            for size, script, figures, seconds in turns:
                port, pid = sidecars[size]
                turn = wrk(port, "/", pid, seconds=seconds, script=script)
                figures[size].append(1e6 / turn.per_wall_s)
            # The turn after a walk runs on a busier machine, so the order changes.
            turns = turns[1:] + turns[:1]
    return {"look-up, us": ten, "look-up of each in turn, us": each, "RSS before the first, MB": memory}


@contextlib.contextmanager
def _sidecar(kafka: FakeCluster, folder: Path, topics: int) -> Iterator[tuple[int, int]]:
    """Yields a sidecar's port and pid, once it knows the topics."""
    api, admin = free_port(), free_port()
    config = folder / f"{topics}.toml"
    config.write_text(f"warm_topics = {json.dumps([topic_name(number) for number in range(topics)])}\n")
    command = [
        *("-m", "service", "serve", "--config", str(config), "--log-level", "error"),
        *("--api-port", str(api), "--admin-port", str(admin)),
        *("--kafka", f"bootstrap.servers={kafka.bootstrap_servers}"),
    ]
    with process(command, admin, "/livez") as server:
        await_answer(server, api, f"/v1/topics/{topic_name(topics - 1)}/leader?partition=0")
        yield api, server.pid


def _script(folder: Path, topics: int, count: int) -> Path:
    path = folder / f"{topics}-{count}.lua"
    path.write_text(_SCRIPT % {"count": count, "step": topics / count})
    return path
