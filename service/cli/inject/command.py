"""`pilotfish inject`: reads the options, prints the manifests.

    pilotfish inject -f deploy.yaml --bootstrap-servers kafka-bootstrap.kafka:9092 | kubectl apply -f -

Manifests go to standard output, messages to standard error. Exit code 0 on success, 1 when a manifest was
refused, 2 for a usage error; on errors nothing is printed or written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from client_core import OPTIONS
from service.base.settings import OWN_NAMES, Settings
from service.cli.inject.asked import Options, doubts, sidecar_of
from service.cli.inject.faults import AskedError

if TYPE_CHECKING:
    from service.cli.inject.manifests import Result

_EXAMPLES: Final = """
\b
Examples:
  Look at what would change:
    pilotfish inject -f deploy.yaml --bootstrap-servers kafka:9092 | diff deploy.yaml -
  Apply it:
    pilotfish inject -f deploy.yaml --bootstrap-servers kafka:9092 | kubectl apply -f -
  What a cluster runs, or a chart renders:
    kubectl get deploy web -o yaml | pilotfish inject -f - --bootstrap-servers kafka:9092
    helm template web ./chart | pilotfish inject -f - --only Deployment/web --bootstrap-servers kafka:9092
  With a password out of a Secret:
    pilotfish inject -f deploy.yaml --bootstrap-servers kafka:9093 --secret sasl=kafka-sasl \\
      --kafka security.protocol=SASL_SSL --kafka sasl.mechanism=SCRAM-SHA-512 --kafka sasl.username=web \\
      --kafka sasl.password.file=/etc/pilotfish/secrets/sasl/password
  Take it out again:
    pilotfish inject -f deploy.yaml --uninject
"""

#: The default: a native sidecar.
_NATIVE: Final = True


def _own_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(f"{name}=", help=Settings.model_fields[name].description)
        for name in OWN_NAMES
        if name.startswith(incomplete)
    ]


def _kafka_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of Kafka's settings; for a secret, the name of its file setting."""
    named = [(option.file_name if option.kind.secret else option.name, option.doc) for option in OPTIONS]
    return [
        CompletionItem(f"{name}=", help=doc) for name, doc in named if name and name.startswith(incomplete)
    ]


@click.command(short_help="Adds the sidecar to manifests of Kubernetes.", epilog=_EXAMPLES)
@click.argument("files", nargs=-1, metavar="")
@click.option(
    "-f",
    "--filename",
    "named",
    multiple=True,
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="A manifest (YAML or JSON), a folder of manifests, or - for standard input. Repeatable.",
)
@click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="The brokers, as the pod will reach them.")
@click.option(
    "--image", metavar="IMAGE", help="The sidecar's image; pilotfish:VERSION of this command unless given."
)
@click.option(
    "--image-pull-policy",
    type=click.Choice(("Always", "IfNotPresent", "Never")),
    default="IfNotPresent",
    help="When the image is pulled.",
)
@click.option(
    "--requests",
    default="",
    metavar="NAME=QUANTITY,…",
    help="Resources that the sidecar requests; cpu=50m,memory=128Mi unless given.",
)
@click.option(
    "--limits",
    default="",
    metavar="NAME=QUANTITY,…",
    help="The sidecar's limits; memory=256Mi unless given.",
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    help="An environment variable that is no setting: OTEL_EXPORTER_OTLP_ENDPOINT=…. Repeatable.",
)
@click.option(
    "--set",
    "own",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=_own_names,
    help="A setting of the sidecar's: log_level=debug. Repeatable.",
)
@click.option(
    "--kafka",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=_kafka_names,
    help="A Kafka setting: linger.ms=5. Repeatable.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME=SECRET",
    help="A Secret, mounted at /etc/pilotfish/secrets/NAME. Repeatable.",
)
@click.option("--config-map", metavar="NAME", help="A ConfigMap with a key pilotfish.toml.")
@click.option(
    "--native/--legacy",
    default=_NATIVE,
    help="As an init container that keeps running (the default; Kubernetes 1.29), or as a container.",
)
@click.option("--readiness", is_flag=True, help="Make the pod unready while the sidecar has no Kafka.")
@click.option(
    "--app-grace-seconds",
    type=click.IntRange(0, 86_400),
    metavar="SECONDS",
    help="How long the app may take to end; default: its terminationGracePeriodSeconds, or 30.",
)
@click.option("--only", multiple=True, metavar="KIND/NAME", help="Only this workload. Repeatable.")
@click.option("--uninject", is_flag=True, help="Remove the sidecar instead.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False), metavar="FILE", help="Write to a file instead."
)
@click.option("--in-place", "-i", is_flag=True, help="Write each file back where it came from.")
@click.option("--summary", is_flag=True, help="Report on standard error what was done with each object.")
@click.pass_context
def inject(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    named: tuple[str, ...],
    only: tuple[str, ...],
    uninject: bool,
    output: str | None,
    in_place: bool,
    summary: bool,
    **about_the_sidecar: Any,
) -> None:
    """Adds the sidecar to the pods of manifests, or updates it there, and prints the manifests.

    Pods of Deployments, StatefulSets, DaemonSets, ReplicaSets, ReplicationControllers, Jobs and CronJobs, and
    pods themselves. Everything else, comments included, is printed unchanged. A second run changes nothing.
    """
    _check_files(files, named, only, output, in_place)
    options = Options(**about_the_sidecar)
    if uninject:
        _refuse_beside_uninject(ctx)
    sidecar = None if uninject else sidecar_of(options)

    # Loaded here: listing the commands, or calling a sidecar, needs no YAML.
    from service.cli.inject import files as manifest_files
    from service.cli.inject import manifests

    paths = manifest_files.paths_of(named)
    sources = manifest_files.read(paths)
    done = manifests.uninject(sources, only) if sidecar is None else manifests.inject(sources, sidecar, only)
    if in_place:
        together = zip(paths, sources, done.texts, strict=True)
        manifest_files.write({Path(path): text for path, source, text in together if text != source.text})
    elif output is not None:
        manifest_files.write({Path(output): manifest_files.joined(done.texts)})
    else:
        click.echo(manifest_files.joined(done.texts).encode(), nl=False)
    _say(done, [] if sidecar is None else doubts(options), summary)


def _check_files(
    files: tuple[str, ...], named: tuple[str, ...], only: tuple[str, ...], output: str | None, in_place: bool
) -> None:
    # A word that is no file may be half of an option, and a secret.
    faults = [
        f"{name}: say -f {name}" if Path(name).exists() else "unexpected argument; name a file with -f FILE"
        for name in files
    ]
    if not named and not files:
        faults.append("-f: name a manifest, or - for standard input")
    faults += [
        f"-f {name}: is a URL; fetch it first: curl -fsS {name} | pilotfish inject -f -"
        for name in named
        if name.startswith(("http://", "https://"))
    ]
    faults += [
        f"-f {name}: there is no such file or folder"
        for name in named
        if name != "-" and "://" not in name and not Path(name).exists()
    ]
    faults += [
        f"--only {one}: must be KIND/NAME, such as Deployment/web"
        for one in only
        if "/" not in one.strip("/")
    ]
    if in_place and output is not None:
        faults.append("--in-place and --output: exclude each other; give one of them")
    if in_place and "-" in named:
        faults.append("--in-place: can't be used with standard input; omit it, or name the file")
    if faults:
        raise AskedError(faults)


def _refuse_beside_uninject(ctx: click.Context) -> None:
    """Raises AskedError for sidecar options given with --uninject."""
    given = [
        ", ".join([*param.opts, *param.secondary_opts])
        for param in ctx.command.params
        if param.name in Options.__dataclass_fields__
        and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise AskedError([f"{option}: has no effect with --uninject; omit it" for option in given])


def _say(done: Result, doubtful: list[str], summary: bool) -> None:
    for text in [*done.warnings, *doubtful]:
        click.echo(f"Warning: {text}", err=True)
    for reports in done.reports:
        if summary or reports.is_doubtful:
            click.echo(f"{reports.place}: {reports.did}", err=True)
    if not any(reports.did in _DONE for reports in done.reports):
        click.echo("Nothing has changed: the input has no workload that inject changes.", err=True)


#: Reports of workloads that were processed.
_DONE: Final = ("injected", "is up to date", "brought up to date", "taken out")
