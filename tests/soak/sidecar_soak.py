"""A sidecar process under all faults at once, round after round, and its sizes after each.

    with SidecarSoak(folder, seed=7) as soak:
        soak.round(acts=200)             # acts of callers, faults of brokers and topics
        measured = soak.measure()        # drained: nothing is in flight

The brokers are the fake cluster's, over sockets, in this process; the callers are threads of this process.
Kafka's options shorten time: minutes of operation take a second. Brokers demand TLS with a certificate, and
SASL again every half second. Every third round both sides get other certificates, the brokers' from another
authority, and the collector of spans refuses the spans. `brief` is without TLS and spans, whose effects last
longer than a short soak. With `leak` the sidecar keeps an object of each request, to prove that it is found.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self

from client_core.error_codes import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.testing.cluster import FakeCluster
from client_core.testing.reactions import Delay, Disconnect, Garbage, HalfFrame, Silence
from client_core.testing.sasl import SaslDemand
from tests.soak.callers import Caller, Names
from tests.soak.process_sizes import sizes_of
from tests.support.certificates import Authority, write_pem
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.sidecar import Sidecar
from tests.support.tls_peers import server_context, show
from tests.support.tokens import TokensFile
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_ROOT: Final = __file__.rsplit("/", 3)[0]
_STEADY: Final = tuple(f"steady-{number}" for number in range(8))
_EVENTS: Final = "pilotfish.events"
_PARTITIONS: Final = 3
_BROKERS: Final = 3
_CALLERS: Final = 3
_DRAINED_S: Final = 60.0
#: How often the numbers are counted that vary with the work of a moment.
_COUNTS: Final = 4
#: One that is under way.
_REQUEST: Final = "client_core.producer.requests.pending_request.PendingRequest"
#: Topics that come and go in a round, and how many there are at a time.
_NEW_TOPICS: Final = 15
_MOST_CHURNING: Final = 20

_HOST: Final = "127.0.0.1"
_USER: Final = "soak"
_MECHANISM: Final = "SCRAM-SHA-256"
#: How long brokers take a proof for good: each connection renews it about as often.
_SESSION_MS: Final = 500

#: Time in the small. metadata.max.idle.ms is as short as Kafka lets it be.
_KAFKA: Final[Mapping[str, str]] = {
    "metadata.max.age.ms": "1000",
    "metadata.max.idle.ms": "5000",
    "connections.max.idle.ms": "1000",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "100",
    "retry.backoff.ms": "20",
    "retry.backoff.max.ms": "100",
    "request.timeout.ms": "400",
    "delivery.timeout.ms": "1500",
    "max.block.ms": "500",
    "compression.type": "gzip",
    "sasl.mechanism": _MECHANISM,
    "sasl.username": _USER,
}
_SASL_ALONE: Final[Mapping[str, str]] = {"security.protocol": "SASL_PLAINTEXT"}
_FLAGS: Final[Mapping[str, str]] = {
    "unknown-topic-wait-ms": "100",
    "idempotency-memory-ms": "3000",
    "events-files": "3",
}
_LIMITS: Final[Mapping[str, int]] = {
    "topic_configs_wait_ms": 200,
    "topic_configs_max_age_ms": 1_000,
    "watch_history_events": 100,
    "watch_linger_ms": 500,
    "watch_look_up_ms": 500,
    "idempotency_max_keys": 50,
    "topic_metrics_limit": 20,
    "request_timeout_ms": 1_000,
    "stall_timeout_ms": 1_000,
    "listing_max_age_ms": 200,
    "watch_heartbeat_ms": 500,
    "events_window_ms": 1_000,
    "events_heartbeat_ms": 1_000,
    "events_file_max_age_ms": 1_000,
}

#: Series, but for the exposition's own comments.
_SERIES: Final = re.compile(r"^[^#\n].*$", re.MULTILINE)
_SPANS: Final = re.compile(r"^pilotfish_tracing_spans_(\w+) (\S+)$", re.MULTILINE)


class SidecarSoak:
    """One sidecar, its brokers and its callers."""

    def __init__(self, folder: Path, seed: int, *, brief: bool = False, leak: bool = False) -> None:
        self._random = Random(f"sidecar soak {seed}")
        self._seed = seed
        self._socket, self._unix = folder / "observer", folder / "api"
        self._trust, self._keystore = folder / "trust.pem", folder / "keystore.pem"
        self._authority, self._clients = Authority(), Authority()
        self._rotate_files(self._authority)
        self._collector = OtlpReceiver()
        self._rounds = 0
        tls = server_context(
            self._authority.issue(_HOST), client_auth="required", trusts=self._clients.certificate
        )
        self._brief = brief
        self._cluster = FakeCluster(_BROKERS, seed=seed, tls=None if brief else tls)
        tokens = TokensFile(folder, soak={"read": ["*"], "produce": ["*"]})
        (folder / "events").mkdir()
        #: What callers and brokers did.
        self.counts: Counter[str] = Counter()
        password = self._random.randbytes(16).hex()
        (folder / "password").write_text(password)
        self._cluster.demand_sasl(
            SaslDemand((_MECHANISM,), passwords={_USER: password}, session_lifetime_ms=_SESSION_MS)
        )
        self._cluster.start()
        for topic in (*_STEADY, _EVENTS):
            self._cluster.create_topic(topic, partitions=_PARTITIONS, replication_factor=_BROKERS)
        flags = [f"--{name}={value}" for name, value in _FLAGS.items()]
        self._sidecar = Sidecar(
            folder,
            bootstrap_servers=self._cluster.bootstrap_servers,
            kafka={
                **_KAFKA,
                **(_SASL_ALONE if brief else self._tls_settings()),
                "sasl.password.file": str(folder / "password"),
            },
            socket_path=self._unix,
            flags=[
                *flags,
                "--topic-metrics",
                *([] if brief else ["--tracing=otlp"]),
                f"--tokens-file={tokens.setting}",
                f"--events-topic={_EVENTS}",
                f"--events-folder={folder / 'events'}",
                *(["--access-log"] if leak else []),
            ],
            environment={
                "PYTHONPATH": _ROOT,
                "OTEL_EXPORTER_OTLP_ENDPOINT": self._collector.url,
                "OTEL_BSP_SCHEDULE_DELAY": "200",
                "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
            },
            program=(
                *("-m", "tests.soak.observed", str(self._socket), json.dumps(_LIMITS)),
                *(["--leak"] if leak else []),
            ),
            headers=tokens.of("soak"),
        )
        self._names = Names(_STEADY, self._cluster.cluster_id)
        self._headers = tokens.of("soak")
        self._churned = 0

    def __enter__(self) -> Self:
        self._collector.__enter__()
        try:
            self._sidecar.__enter__()
        except BaseException:
            self._cluster.close()
            self._collector.__exit__()
            raise
        address = ("127.0.0.1", self._sidecar.api_port)
        self._callers = [
            Caller(address, self._unix, self._names, Random(f"{self._seed}/{number}"), self._headers)
            for number in range(_CALLERS)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for caller in self._callers:
            caller.close()
        self._sidecar.__exit__()
        self._cluster.close()
        self._collector.__exit__()

    def log(self) -> str:
        """What the sidecar has logged."""
        return self._sidecar.log()

    # -- a round ---------------------------------------------------------------------------------------------

    def round(self, acts: int) -> None:
        """So many acts of the callers, with faults of brokers and topics; then quiet."""
        threads = [threading.Thread(target=self._call, args=(c, acts // _CALLERS)) for c in self._callers]
        for thread in threads:
            thread.start()
        self._trouble()
        for thread in threads:
            thread.join()
        self._cluster.forget_history()
        self._collector.status = 200
        wait_until(
            self._is_drained, what="a drained sidecar", timeout_s=_DRAINED_S, last_seen=self._status_text
        )
        # Last, since each question of whether it is drained is a span too.
        wait_until(lambda: not self._spans("waiting"), what="the way out of all spans", timeout_s=_DRAINED_S)
        self._collector.requests.clear()
        self.counts["spans"] = self._spans("exported_total")

    @staticmethod
    def _call(caller: Caller, acts: int) -> None:
        for _ in range(acts):
            caller.act()

    def _trouble(self) -> None:
        """What goes wrong in a round, one thing after the other."""
        cluster, random = self._cluster, self._random
        self._churn()
        # Less often than connections are made anew, one a second.
        if self._rounds % 3 == 0 and not self._brief:
            self._rotate()
        self._collector.status = 503 if self._rounds % 3 == 2 else 200
        self._rounds += 1
        cluster.move_leader(
            random.choice(_STEADY), random.randrange(_PARTITIONS), random.randint(1, _BROKERS)
        )
        for reaction in (Silence(), Delay(200), Disconnect(), HalfFrame(then_close=True), Garbage()):
            api = random.choice((ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.METADATA))
            cluster.react_next(api, reaction)
        cluster.fail_next_produces(Errors.NOT_LEADER_OR_FOLLOWER, times=2)
        cluster.fail_next_produces(Errors.NOT_ENOUGH_REPLICAS, times=2)
        cluster.fail_next_produces(Errors.MESSAGE_TOO_LARGE)
        cluster.drop_connections(random.randint(1, _BROKERS))
        # The first one keeps the address of bootstrap.servers, or no client could bootstrap again.
        broker_id = random.randint(2, _BROKERS)
        cluster.kill(broker_id)
        cluster.revive(broker_id, new_port=True)
        self.counts["brokers at new ports"] += 1

    def _rotate(self) -> None:
        """Certificates of another authority for the brokers, and another one for the client."""
        former, self._authority = self._authority, Authority()
        self._rotate_files(former, self._authority)
        self._cluster.change_tls(partial(show, identity=self._authority.issue(_HOST)))
        self.counts["certificates changed"] += 1

    def _tls_settings(self) -> Mapping[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self._trust),
            "ssl.keystore.location": str(self._keystore),
        }

    def _rotate_files(self, *trusted: Authority) -> None:
        write_pem(self._trust, "".join(authority.certificate for authority in trusted))
        self._clients.issue("client.example").write(self._keystore)

    def _churn(self) -> None:
        names = list(self._names.churning)
        for _ in range(_NEW_TOPICS):
            self._churned += 1
            name = f"churn-{self._churned}-{self._random.getrandbits(32):08x}"
            self._cluster.create_topic(name, partitions=_PARTITIONS, replication_factor=_BROKERS)
            names.append(name)
        gone, self._names.churning = names[:-_MOST_CHURNING], tuple(names[-_MOST_CHURNING:])
        for name in gone:
            self._cluster.delete_topic(name)
        self.counts["topics made"] += _NEW_TOPICS
        self.counts["topics deleted"] += len(gone)

    def _is_drained(self) -> bool:
        status = self._status()
        return not (
            status["waiting_requests"]
            or status["watchers"]
            or status["buffer"]["batches"]
            or status["waiting_bytes"]
        )

    def _spans(self, which: str) -> int:
        """0 without tracing, which has no such series."""
        reported = dict(_SPANS.findall(self._sidecar.admin.get("/metrics").text))
        return int(float(reported.get(which, 0)))

    def _status(self) -> Mapping[str, Any]:
        reported: Mapping[str, Any] = self._sidecar.api.get("/v1/status").json()
        return reported

    def _status_text(self) -> str:
        return json.dumps(self._status())[:2_000]

    # -- its sizes -------------------------------------------------------------------------------------------

    def measure(self) -> dict[str, float]:
        """What the sidecar holds, from outside and inside, by name."""
        inventory = self._inventory()
        scraped = self._sidecar.admin.get("/metrics").text
        status = self._status()
        sizes = sizes_of(self._pid())
        return {
            **{f"objects {name}": count for name, count in inventory["objects"].items()},
            **{f"length {name}": count for name, count in inventory["containers"].items()},
            **inventory["allocated"],
            "rss_bytes": sizes.rss_bytes,
            "uss_bytes": sizes.uss_bytes,
            "anonymous_bytes": sizes.anonymous_bytes,
            "descriptors": sizes.descriptors,
            "threads": sizes.threads,
            "metric_series": len(_SERIES.findall(scraped)),
            "metrics_bytes": len(scraped),
            "status_bytes": len(json.dumps(status)),
            "buffer_held_bytes": status["buffer"]["total_bytes"] - status["buffer"]["available_bytes"],
        }

    def _inventory(self) -> Mapping[str, Mapping[str, int]]:
        """The least of several counts of each name: some of the sidecar's events always wait, but not the
        same ones. At least one count is made while no batch of events is in flight: a broker may take any
        time to answer one, and /v1/status does not include the producer of events.
        """
        counted: list[dict[str, dict[str, int]]] = []

        def enough() -> bool:
            counted.append(self.ask("inventory"))
            return len(counted) >= _COUNTS and any(_REQUEST not in one["objects"] for one in counted)

        wait_until(enough, what="a moment without a produce request", timeout_s=_DRAINED_S)
        return {
            kind: {name: min(one[kind].get(name, 0) for one in counted) for name in counted[0][kind]}
            for kind in counted[0]
        }

    def requests(self) -> Counter[str]:
        """What the callers did so far, and what they were answered."""
        return sum((caller.counts for caller in self._callers), self.counts.copy())

    def ask(self, question: str) -> Any:
        """What the observer in the sidecar answers."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(_DRAINED_S)
            peer.connect(str(self._socket))
            peer.sendall(question.encode() + b"\n")
            with peer.makefile() as answer:
                return json.loads(answer.read())

    def _pid(self) -> int:
        return self._sidecar.process.pid


def live_through(
    folder: Path, seed: int, *, rounds: int, acts: int, leak: bool = False
) -> tuple[Counter[str], Sequence[dict[str, float]]]:
    """So many rounds of a brief soak, and what was held after each."""
    with SidecarSoak(folder, seed, brief=True, leak=leak) as soak:
        measured = []
        for _ in range(rounds):
            soak.round(acts)
            measured.append(soak.measure())
        return soak.requests(), measured
