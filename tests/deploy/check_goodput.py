"""What a memory limit costs: seventy callers of a megabyte while brokers pause and go on. Three minutes.

For each limit of a cgroup, and without one, flood.py's callers send bodies of a megabyte to a sidecar with
three real brokers, which are stopped for a while (SIGSTOP). The goodput is what they got 200 for. No sidecar
may be killed. At 256 MiB the goodput must be 70 % of that without a limit; each is played in turn, twice.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import nullcontext
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Final

from tests.deploy.check_image import java_and_jars
from tests.deploy.outcome import BrokenPromiseError, UnavailableError
from tests.support.kraft import KraftCluster
from tests.support.limited_cgroup import CgroupMissingError, LimitedCgroup
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    Say = Callable[[str], None]

_MIB: Final = 1024 * 1024
_LIMITS_MIB: Final = (96, 128, 256, None)
_ENOUGH_MIB: Final = 256
_LEAST_SHARE: Final = 0.7
_TIMES: Final = 2
_CALLERS: Final = 70
_FLOOD_S: Final = 20
#: From and to when brokers are stopped.
_STOPPED_S: Final = (5.0, 10.0)
_TOPIC: Final = "goodput"


def check(say: Say) -> None:
    """Plays all. Raises BrokenPromiseError and UnavailableError."""
    java, jars = java_and_jars()
    seen: defaultdict[int | None, list[Counter[str]]] = defaultdict(list)
    try:
        with tempfile.TemporaryDirectory(prefix="pilotfish-goodput-") as name:
            folder = Path(name)
            with KraftCluster(java, jars, folder / "kafka") as kafka:
                kafka.admin.create_topic(_TOPIC, partitions=6, replication_factor=3)
                for number in range(_TIMES * len(_LIMITS_MIB)):
                    limit_mib = _LIMITS_MIB[number % len(_LIMITS_MIB)]
                    (folder / str(number)).mkdir()
                    seen[limit_mib].append(_play(kafka, folder / str(number), limit_mib))
    except CgroupMissingError as error:
        raise UnavailableError(str(error), "run it as root, on a machine with cgroups") from error
    except AssertionError as error:
        raise BrokenPromiseError(str(error)) from error
    goodput = {
        limit_mib: mean(codes["200"] for codes in played) / _FLOOD_S for limit_mib, played in seen.items()
    }
    for limit_mib, played in seen.items():
        answers = ", ".join(
            " ".join(f"{n} x {code}" for code, n in sorted(codes.items())) for codes in played
        )
        limit = "no limit" if limit_mib is None else f"{limit_mib} MiB"
        share = goodput[limit_mib] / goodput[None]
        say(f"{limit}: {goodput[limit_mib]:.1f} MB/s acknowledged, {share:.2f} of no limit ({answers})")
    if goodput[_ENOUGH_MIB] < _LEAST_SHARE * goodput[None]:
        raise BrokenPromiseError(f"at {_ENOUGH_MIB} MiB the goodput is less than {_LEAST_SHARE} of no limit")


def _play(kafka: KraftCluster, folder: Path, limit_mib: int | None) -> Counter[str]:
    """How often the callers got which status."""
    limited = nullcontext() if limit_mib is None else LimitedCgroup(memory_bytes=limit_mib * _MIB)
    with limited as group:
        program = ("-m", "service") if group is None else group.program
        with Sidecar(folder, bootstrap_servers=kafka.bootstrap_servers, program=program) as sidecar:
            wait_until(lambda: sidecar.admin.get("/readyz").is_success, what="a sidecar that is ready")
            flood = subprocess.Popen(
                (
                    *(sys.executable, "-m", "tests.deploy.flood", str(sidecar.api_port), _TOPIC),
                    *(str(_CALLERS), str(_FLOOD_S)),
                ),
                stdout=subprocess.PIPE,
            )
            try:
                stop_s, go_on_s = _STOPPED_S
                time.sleep(stop_s)
                for broker_id in kafka.broker_ids:
                    kafka.pause(broker_id)
                time.sleep(go_on_s - stop_s)
                for broker_id in kafka.broker_ids:
                    kafka.resume(broker_id)
                said, _ = flood.communicate(timeout=10 * _FLOOD_S)
            finally:
                flood.kill()
                flood.wait()
            assert sidecar.is_running, sidecar.log()
            return Counter(json.loads(said))
