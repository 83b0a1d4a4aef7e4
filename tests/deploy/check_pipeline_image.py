"""The pipeline's image, built for real, and the CronJob's containers run from it, in their order.

As check_image.py it needs no daemon and pulls no image: its base is made of Debian's packages, its Java is
this machine's. The events come from a real broker. Each container has the arguments of cronjob.yaml, a
read-only root, no capabilities, and volumes where the manifest has them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml  # type: ignore[import-untyped]
from confluent_kafka import Producer

from pipeline.gold import GOLD
from pipeline.jars import connector_jars
from pipeline.jars.connector_jars import JarsMissingError
from pipeline.java import JavaMissingError
from tests.deploy.debian_base import CACHE, base_archive
from tests.deploy.debian_programs import ProgramFailedError, require_programs
from tests.deploy.image_builder import ImageBuilder, ImageConfig
from tests.deploy.oci_container import ContainerRuntime
from tests.deploy.outcome import BrokenPromiseError, UnavailableError
from tests.deploy.pip_secrets import access_of_this_machine, build_secrets
from tests.pipeline.simulate.folder import simulate
from tests.pipeline.simulate.plan import plan_for
from tests.support.java import find_java
from tests.support.kafka_jars import ensure_jars
from tests.support.kraft import KraftCluster
from tests.support.process_guard import ProcessGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    Say = Callable[[str], None]

ROOT: Final = Path(__file__).resolve().parents[2]
CRON_JOB: Final = ROOT / "helm" / "pilotfish-pipeline" / "cronjob.yaml"

_BASE: Final = "localhost/pilotfish-base"
_JAVA: Final = "localhost/pilotfish-java"
_IMAGE: Final = "localhost/pilotfish-pipeline"
_EVENTS: Final = 2_000
_RUN_TIMEOUT_S: Final = 600
#: Large, and needed for compiling only.
_NOT_AT_RUN_TIME: Final = ("src.zip", "jmods", "ct.sym", "*.debuginfo")


def check(say: Say) -> None:
    """Builds the image and runs the CronJob's containers. Raises BrokenPromiseError and UnavailableError."""
    archive = base_archive(say)
    require_programs("buildah", "crun")
    try:
        java, jars = find_java().path, ensure_jars()
        connectors = connector_jars.default_folder(ROOT)
        connector_jars.ensure_connector_jars(connectors)
    except (JavaMissingError, JarsMissingError) as error:
        raise UnavailableError(f"there is no Kafka or no Spark: {error}", "make java kafka-jars") from error
    guard = ProcessGuard()
    try:
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="pipeline-") as name:
            folder = Path(name)
            guard.remove_at_end(folder)  # if this process is killed: it is more than a gigabyte
            builder = ImageBuilder(folder)
            builder.import_root(archive, _BASE)
            _import_java(builder, Path(java), folder)
            _build(say, builder, folder, connectors)
            with (
                ContainerRuntime(folder) as runtime,
                KraftCluster(java, jars, folder / "kafka", brokers=1) as kafka,
            ):
                image, root = builder.config(_IMAGE), builder.mount(_IMAGE)
                runtime.require(image, root)
                _run_jobs(say, runtime, image, root, kafka, folder)
    except (AssertionError, ProgramFailedError) as error:
        raise BrokenPromiseError(str(error)) from error
    finally:
        guard.close()


def _import_java(builder: ImageBuilder, java: Path, folder: Path) -> None:
    """Makes an image with this machine's Java where Temurin's images have theirs."""
    home = folder / "java"
    shutil.copytree(
        java.resolve().parents[1],
        home,
        ignore=shutil.ignore_patterns(*_NOT_AT_RUN_TIME),
        ignore_dangling_symlinks=True,
    )
    archive = folder / "java.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(home, "opt/java/openjdk")
    builder.import_root(archive, _JAVA)


def _build(say: Say, builder: ImageBuilder, folder: Path, connectors: Path) -> None:
    """Builds it in a folder that has what `make dist pipeline-jars` leaves, and what the repository has."""
    context = folder / "context"
    for path in ("requirements/pipeline.txt", "pipeline/Dockerfile", "pipeline/Dockerfile.dockerignore"):
        (context / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, context / path)
    shutil.copytree(connectors, context / connectors.relative_to(ROOT))
    command = (sys.executable, "requirements/distributions.py", str(context / "dist"))
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    began_s = time.monotonic()
    flags = ("--file", str(context / "pipeline/Dockerfile"))
    bases = ("--build-arg", f"BASE_IMAGE={_BASE}", "--build-arg", f"JAVA_IMAGE={_JAVA}")
    builder.build(context, _IMAGE, [*flags, *bases, *build_secrets(access_of_this_machine(), folder)])
    say(f"built by buildah in {time.monotonic() - began_s:.0f} s")


def _run_jobs(
    say: Say, runtime: ContainerRuntime, image: ImageConfig, root: Path, kafka: KraftCluster, folder: Path
) -> None:
    pod: dict[str, Any] = yaml.safe_load(CRON_JOB.read_text())["spec"]["jobTemplate"]["spec"]["template"][
        "spec"
    ]
    (run,), (maintain,) = pod["initContainers"], pod["containers"]
    (topic,) = (word.removeprefix("--topic=") for word in run["args"] if word.startswith("--topic="))
    kafka.admin.create_topic(topic, partitions=1, replication_factor=1)
    volumes = {"/data": folder / "tables", "/tmp": folder / "tmp"}
    user, _, group = image.user.partition(":")
    for outside in volumes.values():
        outside.mkdir()
        os.chown(outside, int(user), int(group))
    secret = folder / "secret"
    secret.mkdir()
    (secret / "client.properties").write_text("client.id=pipeline\n")

    def play(container: dict[str, Any], *more: str) -> str:
        command = [*image.entrypoint, *container["args"], *more]
        files = {"/etc/pilotfish/kafka": secret}
        with runtime.start(image, root, command=command, files=files, writable=volumes) as running:
            code = running.process.wait(_RUN_TIMEOUT_S)
            assert code == 0, f"{container['name']} ended with {code}: {running.log()}"
            return running.log()

    where = f"--bootstrap-servers={kafka.bootstrap_servers}"
    play(run, where)
    play(maintain)
    say("a topic without events: run and maintain end with 0")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for line in simulate(plan_for(_EVENTS)):
        producer.produce(topic, line.rstrip(b"\n"), partition=0)
    assert producer.flush(60) == 0
    said = play(run, where)
    tables = {path.name for path in (volumes["/data"] / "pilotfish").iterdir() if path.is_dir()}
    missing = GOLD.keys() - tables
    assert not missing, f"the run made no {', '.join(sorted(missing))}: {said}"
    say(f"{_EVENTS:,} events of a real topic: every table made, as {image.user} on a read-only root")
    play(maintain)
    say("maintain ends with 0")
    delta = [word.replace("--out=/data/pilotfish", "--out=/data/delta") for word in run["args"]]
    play({**run, "args": delta}, where, "--store=delta")
    say("the same into Delta")
