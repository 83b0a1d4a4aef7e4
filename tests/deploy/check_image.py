"""The image, built for real and run: `python -m tests.deploy image`. Minutes at first, then one or two.

It needs no daemon and pulls no image. It uses a base of Debian's packages (debian_base.py), buildah
(image_builder.py), crun (oci_container.py) and Apache Kafka. It checks the image's files (image_contents.py),
and the life of a container with a read-only root (image_life.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import certifi

from pipeline.jars.connector_jars import JarsMissingError
from pipeline.java import JavaMissingError
from tests.deploy import image_contents as contents
from tests.deploy.debian_base import CACHE, base_archive
from tests.deploy.debian_programs import ProgramFailedError, output_of, require_programs
from tests.deploy.image_builder import ImageBuilder, ImageConfig
from tests.deploy.image_life import ImageLife
from tests.deploy.oci_container import ContainerRuntime
from tests.deploy.outcome import BrokenPromiseError, UnavailableError
from tests.deploy.pip_secrets import access_of_this_machine, build_secrets, traces
from tests.support.java import find_java
from tests.support.kafka_jars import ensure_jars
from tests.support.kraft import KraftCluster
from tests.support.process_guard import ProcessGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    Say = Callable[[str], None]

ROOT: Final = Path(__file__).resolve().parents[2]

BASE: Final = "localhost/pilotfish-base"
IMAGE: Final = "localhost/pilotfish"
_TRACED: Final = "localhost/pilotfish-otel"
_USER: Final = "10001:10001"
_TOPIC: Final = "image"
_STARTS: Final = 3
_MEMORY_REQUESTS: Final = 200
_CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"
#: As pip says it when no connection can be made, through a proxy or without.
_NO_INDEX: Final = "after connection broken by"
_MB: Final = 1_000_000


def check(say: Say) -> None:
    """Builds the image and runs it. Raises BrokenPromiseError and UnavailableError."""
    archive = base_archive(say)
    require_programs("buildah", "crun")
    java, jars = java_and_jars()
    guard = ProcessGuard()
    try:
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as folder:
            guard.remove_at_end(Path(folder))  # if this process is killed: it is half a gigabyte
            _check(say, Path(folder), archive, KraftCluster(java, jars, Path(folder, "kafka"), brokers=1))
    except (AssertionError, ProgramFailedError) as error:
        raise BrokenPromiseError(str(error)) from error
    finally:
        guard.close()


def java_and_jars() -> tuple[Path, tuple[Path, ...]]:
    """What real brokers are made of. Raises UnavailableError."""
    try:
        return find_java().path, tuple(ensure_jars())
    except (JavaMissingError, JarsMissingError) as error:
        raise UnavailableError(
            f"there are no brokers to run it beside: {error}", "make java kafka-jars"
        ) from error


def _check(say: Say, folder: Path, archive: Path, kafka: KraftCluster) -> None:
    builder = ImageBuilder(folder)
    builder.import_root(archive, BASE)
    build_image(say, builder, folder)
    image, root = builder.config(IMAGE), builder.mount(IMAGE)
    _sizes(say, builder, root)
    _holds_what_it_should(say, image, root, _bill_of_materials(folder))
    _holds_nothing_of_this_machine(say, image, root, builder.mount(BASE))
    _traces_where_asked_for(say, builder, folder)
    with ContainerRuntime(folder) as runtime:
        runtime.require(image, root)
        with kafka:
            kafka.admin.create_topic(_TOPIC, partitions=1, replication_factor=1)
            _lives(say, ImageLife(runtime, image, root, kafka, folder / "config"), kafka)
        confined = ", and RuntimeDefault's system calls" if runtime.seccomp else ""
        say(f"as {image.user} on a read-only root, without capabilities{confined}")
        if not runtime.seccomp:
            say("SKIPPED seccomp: no profile of RuntimeDefault is at hand")


def build_image(
    say: Say, builder: ImageBuilder, folder: Path, name: str = IMAGE, pins: str = "run.txt", tree: Path = ROOT
) -> None:
    """Builds a tree's Dockerfile on BASE, with this machine's way to a package index.

    Raises UnavailableError.
    """
    secrets = build_secrets(access_of_this_machine(), folder)
    began_s = time.monotonic()
    try:
        arguments = ("--build-arg", f"BASE_IMAGE={BASE}", "--build-arg", f"PINS={pins}")
        builder.build(tree, name, [*arguments, *secrets])
    except ProgramFailedError as error:
        if _NO_INDEX not in error.said:
            raise
        raise UnavailableError(
            f"pip reaches no package index from within the build: {error}",
            "the build gets the output of `pip config list` as secrets; docs/image.md describes them",
        ) from error
    say(f"built of {pins} by buildah in {time.monotonic() - began_s:.0f} s")


def _traces_where_asked_for(say: Say, builder: ImageBuilder, folder: Path) -> None:
    """The image of otel.txt has the distributions of its bill of materials, and can send spans."""
    build_image(say, builder, folder, _TRACED, "otel.txt")
    root = builder.mount(_TRACED)
    faults = contents.differences(contents.installed(root), _bill_of_materials(folder, "otel.txt"))
    assert not faults, "\n".join(faults)
    python = ("chroot", str(root), "/opt/pilotfish/bin/python3", "-c")
    output_of((*python, "import service.observe.tracing.otlp"))
    say("the image of otel.txt can send traces")


def _sizes(say: Say, builder: ImageBuilder, root: Path) -> None:
    program = sum(p.lstat().st_size for p in (root / contents.PROGRAM).rglob("*") if not p.is_dir())
    base, *own = builder.layer_bytes(IMAGE)
    assert len(own) == 1, f"the image has {len(own)} layers on top of its base, and should have one"
    say(f"the base takes {base / _MB:.0f} MB of a registry, the image {own[0] / _MB:.0f} MB more")
    say(f"unpacked, the program and all it needs are {program / _MB:.0f} MB")


def _bill_of_materials(folder: Path, pins: str = "run.txt") -> dict[str, str]:
    """Names and versions of what `make sbom` lists."""
    bills = folder / f"bill-of-{pins}"
    command = ("make", "--silent", "--old-file=setup", "sbom", f"DIST={bills}", f"PINS={pins}")
    subprocess.run(command, cwd=ROOT, check=True, timeout=100)
    (file,) = bills.glob("*.cdx.json")
    listed = json.loads(file.read_text())
    parts = [listed["metadata"]["component"], *listed["components"]]
    return {contents.normalised(part["name"]): part["version"] for part in parts}


def _holds_what_it_should(say: Say, image: ImageConfig, root: Path, listed: dict[str, str]) -> None:
    found = contents.installed(root)
    faults = [
        *contents.compilers(root),
        *contents.unwanted_packages(root),
        *contents.caches(root),
        *contents.writable(root),
        *contents.differences(found, listed),
    ]
    label = image.labels.get("org.opencontainers.image.version")
    if label != found.get("pilotfish"):
        faults.append(f"its label says version {label}, and {found.get('pilotfish')} is installed")
    if image.user != _USER:
        faults.append(f"its user is {image.user or 'root'}, and should be {_USER}")
    if image.healthcheck != ("CMD", "pilotfish", "healthcheck"):
        faults.append(f"its HEALTHCHECK is {image.healthcheck}")
    assert not faults, "\n".join(faults)
    say(f"{len(found)} distributions, those of the bill of materials; no compiler, no pip, nothing left over")


def _holds_nothing_of_this_machine(say: Say, image: ImageConfig, root: Path, base: Path) -> None:
    bundles = (base / _CERTIFICATES, Path(certifi.where()))  # what anyone may have: Debian's and Mozilla's
    public = "".join(bundle.read_text(encoding="utf-8", errors="replace") for bundle in bundles)
    needles = [*traces(access_of_this_machine(), os.environ, public), str(ROOT).encode()]
    faults = contents.traces(root, needles)
    faults += [f"its history or labels hold {n!r}" for n in needles if n in image.everything.encode()]
    assert not faults, "\n".join(faults)
    say(f"no trace of this machine: none of {len(needles)} hosts, certificates and paths is in a file of it")


def _lives(say: Say, life: ImageLife, kafka: KraftCluster) -> None:
    ready_s = [life.serves(_TOPIC) for _ in range(_STARTS)]
    say(f"from the runtime's call to /startupz on real brokers: {', '.join(f'{s:.2f} s' for s in ready_s)}")
    say("it looks up, produces, says by HEALTHCHECK how it is, and ends with 0 after SIGTERM")
    life.drains(_TOPIC)
    values = sorted(record.value or b"" for record in kafka.read_back(_TOPIC))
    wanted = [b"drained 1", b"drained 2", *[b"served"] * _STARTS]
    assert values == wanted, f"the brokers have {values}, and should have {wanted}"
    say("what it had accepted before SIGTERM is delivered after it, and read back")
    compiled = life.compiled_at_start()
    assert not compiled, f"a start compiles files anew: {' '.join(compiled)}"
    say("a start finds bytecode for all it imports")
    at_start, later = life.memory_kib(_TOPIC, _MEMORY_REQUESTS)
    say(f"resident: {at_start >> 10} MiB when ready, {later >> 10} MiB after {_MEMORY_REQUESTS} produces")
