"""`pilotfish produce`: values from the command line, or lines of a file or standard input.

    values   a request for each LINES_PER_REQUEST values (LINES_WITH_TOPICS if they name their topics), and a
             table with a row per record. No value is sent if one is invalid
    lines    a request and a line of output per chunk; failed lines are reported on stderr

It stops at the first request of which no record was acknowledged. For lines, it then reports how many records
before that chunk were acknowledged, and that none after it were. The exit code is 0 if every record was
acknowledged, 1 if not, 130 if the user interrupted it.

A chunk is the available input, limited in lines and bytes. So a slow writer's line does not wait for others,
and a fast writer's lines fill requests. Blocking. `sidecar.py` does the HTTP.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from typing import IO, TYPE_CHECKING, Final, NamedTuple, Protocol, cast

import click
import msgspec

from service.base.logs import harmless
from service.base.topic_names import fault_of_topic_name
from service.cli.options import as_json_option, asks_api, max_block_option, render, text, topic_name
from service.cli.sidecar import InterruptedByUserError, Sidecar, SidecarFailedError
from service.wire.payload import Format, bytes_of_plain
from service.wire.schemas import FailedItem, ManyAnswer, ProduceAnswer, TopicFailedItem, TopicReceipt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from service.cli.sidecar import Answer
    from service.wire.schemas import Receipt

    Result = Receipt | FailedItem

#: The sidecar's name for a record of a request.
_PLACE: Final = re.compile(r"records\[(?P<index>\d+)\][.:]? ?")
_HEAD: Final = ("partition", "offset", "error")


#: Lines per request: enough to fill a batch, few enough for a quick answer.
LINES_PER_REQUEST: Final = 500
#: The same if each line names its topic: the most topics that the sidecar takes in a request.
LINES_WITH_TOPICS: Final = 100
#: Bytes of lines per request: well below the sidecar's default max_body_bytes (16 MiB).
BYTES_PER_REQUEST: Final = 1024 * 1024
#: The sidecar's default max_body_bytes: no larger record fits.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024

_READ_BYTES: Final = 64 * 1024


class ByteStream(Protocol):
    """A binary file whose `read1` returns the available bytes."""

    def read1(self, size: int = -1, /) -> bytes: ...


class Chunk(NamedTuple):
    """Some lines without their line ends; `first` is the first one's number, counted from 1."""

    first: int
    lines: list[bytes]

    @property
    def name(self) -> str:
        last = self.first + len(self.lines) - 1
        return f"line {last}" if last == self.first else f"lines {self.first}-{last}"


class LineTooLongError(Exception):
    """A line exceeds MAX_LINE_BYTES."""


def chunks(source: ByteStream, most_lines: int = LINES_PER_REQUEST) -> Iterator[Chunk]:
    """Yields every line of the source, in order, at most `most_lines` at a time.

    Raises LineTooLongError before a long line can fill the memory.
    """
    first = 1
    for ready in _ready_lines(source):
        while ready:
            lines = _cut(ready, most_lines)
            del ready[: len(lines)]
            yield Chunk(first, lines)
            first += len(lines)


def _cut(ready: list[bytes], most_lines: int) -> list[bytes]:
    """Returns as many lines as fit into one request; at least one."""
    total = 0
    for count, line in enumerate(ready[:most_lines]):
        total += len(line)
        if total > BYTES_PER_REQUEST and count:
            return ready[:count]
    return ready[:most_lines]


def _ready_lines(source: ByteStream) -> Iterator[list[bytes]]:
    """Yields whole lines as reads return them; the last one may lack its line end."""
    begun: list[bytes] = []
    begun_bytes = 0
    while piece := source.read1(_READ_BYTES):
        *ended, rest = piece.split(b"\n")
        if ended:
            ended[0] = b"".join([*begun, ended[0]])
            begun, begun_bytes = [], 0
            yield [line.removesuffix(b"\r") for line in ended]
        begun.append(rest)
        begun_bytes += len(rest)
        if begun_bytes > MAX_LINE_BYTES:
            raise LineTooLongError(f"longer than {MAX_LINE_BYTES} bytes")
    if begun_bytes:
        yield [b"".join(begun).removesuffix(b"\r")]


@click.command(short_help="Produces values, or the lines of standard input.")
@click.argument("topic", type=text, required=False)
@click.argument("values", nargs=-1, type=text)
@click.option(
    "--topic-separator",
    type=text,
    help="Instead of TOPIC: the separator in each value; the part before the first one is its topic.",
)
@click.option("--key", type=text, help="The key of every record.")
@click.option(
    "--key-separator",
    type=text,
    help="The separator in each value: the part before the first one is the key.",
)
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="The partition of every record.")
@click.option(
    "--header",
    "headers",
    type=text,
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of every record. Repeatable.",
)
@click.option("--json-values", is_flag=True, help="Values are JSON; refused if they are not.")
@click.option("--file", "source", type=click.File("rb"), help="A file with lines to produce; - is stdin.")
@max_block_option
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="How long each request may take in total.",
)
@as_json_option
@asks_api
def produce(
    topic: str | None,
    values: tuple[str, ...],
    topic_separator: str | None,
    key: str | None,
    key_separator: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    json_values: bool,
    source: IO[bytes] | None,
    max_block_ms: int | None,
    timeout_ms: int | None,
    as_json: bool,
    sidecar: Sidecar,
) -> None:
    """Produces VALUES, or the lines of standard input, and shows where the records went.

    \b
    pilotfish produce orders '{"total":12.5}' --json-values --key customer-7
    pilotfish produce orders --file orders.txt --key-separator :
    pilotfish produce 'orders|{"total":12.5}' 'audit|{"by":"ann"}' --topic-separator '|' --json-values
    """
    if topic_separator == "":
        raise click.UsageError("--topic-separator must not be empty")
    if topic_separator is not None:  # there is no TOPIC
        values, topic = values if topic is None else (topic, *values), None
    elif topic is None:
        raise click.UsageError("give TOPIC, or --topic-separator if each value names its topic")
    else:
        topic = topic_name(topic)
    if key is not None and key_separator is not None:
        raise click.UsageError("give either --key or --key-separator")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    if values and source is not None:
        raise click.UsageError("give either VALUES or --file")
    shared: dict[str, object] = {"headers": [_header(header) for header in headers], "partition": partition}
    run = _Run(
        sidecar=sidecar,
        topic=topic,
        form=_Form(topic_separator, key, key_separator, json_values, shared),
        times={"max_block_ms": max_block_ms, "timeout_ms": timeout_ms},
        as_json=as_json,
    )
    try:
        if values:
            run.values(values)
        else:
            run.lines(_standard_input() if source is None else cast("ByteStream", source))
    except KeyboardInterrupt as interrupt:
        raise InterruptedByUserError(run.progress()) from interrupt


class _Form:
    """Converts values to the records of a request."""

    def __init__(
        self,
        topic_separator: str | None,
        key: str | None,
        separator: str | None,
        json_values: bool,
        shared: dict[str, object],
    ) -> None:
        self._topic_separator = topic_separator
        self._key = key
        self._separator = separator
        self._json_values = json_values
        self._shared = shared

    def body(self, values: Sequence[str], places: Sequence[str]) -> bytes:
        """Returns the request for these values; raises ValueError with the place of the first invalid one."""
        records = []
        for place, value in zip(places, values, strict=True):
            try:
                records.append({**self._record(value), **self._shared})
            except ValueError as error:
                raise ValueError(f"{place} {error}") from error
        value_format = "json" if self._json_values else "text"
        return msgspec.json.encode({"records": records, "key_format": "text", "value_format": value_format})

    def _record(self, value: str) -> dict[str, object]:
        key = self._key
        named: dict[str, object] = {}
        if self._topic_separator is not None:
            topic, found, value = value.partition(self._topic_separator)
            if not found:
                raise ValueError(f"has no {self._topic_separator!r}, so it has no topic")
            fault = fault_of_topic_name(topic)
            if fault is not None:
                raise ValueError(f"names an invalid topic: {fault}")
            named["topic"] = topic
        if self._separator is not None:
            key, found, value = value.partition(self._separator)
            if not found:
                raise ValueError(f"has no {self._separator!r}, so it has no key")
        return {**named, "key": key, "value": _json(value) if self._json_values else value}


class _Run:
    """One call of the command."""

    def __init__(
        self,
        *,
        sidecar: Sidecar,
        topic: str | None,
        form: _Form,
        times: dict[str, int | None],
        as_json: bool,
    ) -> None:
        self._sidecar = sidecar
        self._topic = topic
        self._form = form
        self._times = times
        self._as_json = as_json
        self._per_request = LINES_PER_REQUEST if topic is not None else LINES_WITH_TOPICS
        self._acknowledged = 0
        self._failed = 0
        #: The lines or values of the request that is not answered yet.
        self._under_way: str | None = None

    def values(self, values: Sequence[str]) -> None:
        """Produces the values of the command line; sends none of them if one is invalid."""
        starts = range(0, len(values), self._per_request)
        try:
            bodies = [self._body_from(values, start) for start in starts]
        except ValueError as error:
            raise SidecarFailedError(f"{error}; no value was sent") from error
        for start, body in zip(starts, bodies, strict=True):
            last = min(start + self._per_request, len(values))
            self._under_way = f"value {last}" if last == start + 1 else f"values {start + 1}-{last}"
            results = self._post(body)
            self._under_way = None
            if not self._as_json:
                head = _HEAD if self._topic is not None else ("topic", *_HEAD)
                click.echo(render(head, map(_row, results), with_head=start == 0))
        self._end()

    def _body_from(self, values: Sequence[str], start: int) -> bytes:
        some = values[start : start + self._per_request]
        return self._form.body(some, [f"value {start + n}" for n in range(1, len(some) + 1)])

    def lines(self, source: ByteStream) -> None:
        """Produces a stream, chunk by chunk."""
        for chunk in _named_chunks(source, self._per_request):
            body = self._body_of(chunk)
            self._under_way = chunk.name
            self._report(chunk, self._post_chunk(chunk, body))
            self._under_way = None
        if not self._as_json:
            click.echo(_sum(self._acknowledged, self._failed), err=True)
        self._end()

    def progress(self) -> str:
        """Returns what is known of the records when the user interrupts the command."""
        perhaps = f"; {self._under_way} may be written too" if self._under_way else ""
        return f"interrupted: {self._acknowledged} records were acknowledged{perhaps}"

    def _body_of(self, chunk: Chunk) -> bytes:
        numbers = range(chunk.first, chunk.first + len(chunk.lines))
        try:
            values = [_decoded(number, line) for number, line in zip(numbers, chunk.lines, strict=True)]
            return self._form.body(values, [f"line {number}" for number in numbers])
        except ValueError as error:
            raise SidecarFailedError(f"{error}; {self._so_far(chunk)}") from error

    def _post_chunk(self, chunk: Chunk, body: bytes) -> Sequence[Result]:
        try:
            return self._post(body)
        except SidecarFailedError as error:
            reported = _with_line(chunk, error.message)
            raise SidecarFailedError(f"{reported}\n{self._so_far(chunk)}") from error

    def _post(self, body: bytes) -> Sequence[Result]:
        answer: Answer[ProduceAnswer] | Answer[ManyAnswer]
        if self._topic is None:
            answer = self._sidecar.post(ManyAnswer, "v1", "records", body=body, **self._times)
        else:
            answer = self._sidecar.post(
                ProduceAnswer, "v1", "topics", self._topic, "records", body=body, **self._times
            )
        results = answer.read.results
        failed = sum(isinstance(result, FailedItem) for result in results)
        self._failed += failed
        self._acknowledged += len(results) - failed
        if self._as_json:
            click.echo(json.dumps(answer.raw))
        return results

    def _report(self, chunk: Chunk, results: Sequence[Result]) -> None:
        """Prints a line for the chunk, and a line on stderr for each failed record."""
        if not self._as_json:
            click.echo(f"{chunk.name}: {_where(results)}")
        for number, result in enumerate(results, start=chunk.first):
            if isinstance(result, FailedItem):
                click.echo(f"line {number}: {_failure(result)}", err=True)

    def _so_far(self, chunk: Chunk) -> str:
        if chunk.first == 1:
            return "nothing was acknowledged"
        return f"{self._acknowledged} records before line {chunk.first} were acknowledged, none after"

    def _end(self) -> None:
        if self._failed:
            raise SidecarFailedError(f"{self._failed} records were not acknowledged")


# -- reading -------------------------------------------------------------------------------------------------


def _standard_input() -> ByteStream:
    if sys.stdin is None:  # closed by the caller; Python then sets None, despite its types
        raise click.UsageError("there is no standard input; give VALUES or --file")
    if sys.stdin.isatty():
        click.echo("Each line becomes a record. Ctrl-D ends.", err=True)
    return cast("ByteStream", sys.stdin.buffer)


def _named_chunks(source: ByteStream, most_lines: int) -> Iterator[Chunk]:
    try:
        yield from chunks(source, most_lines)
    except LineTooLongError as error:
        raise SidecarFailedError(f"a line is {error}; it and the lines after it were not sent") from error


def _decoded(number: int, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"line {number} is not UTF-8") from error


def _json(value: str) -> msgspec.Raw:
    """Checks that the text is one JSON value, as the sidecar does, and returns it unchanged.

    Parsing and encoding it again could change the digits of its numbers.
    """
    try:
        bytes_of_plain(value, Format.JSON)
    except ValueError as error:
        raise ValueError(f"is not JSON: {str(error).removeprefix('not JSON: ')}") from error
    return msgspec.Raw(value.encode())


def _header(given: str) -> dict[str, str]:
    name, found, value = given.partition("=")
    if not found:
        raise click.UsageError(f"--header must be NAME=VALUE, not {given!r}")
    return {"key": name, "value": base64.b64encode(value.encode()).decode()}


# -- printing ------------------------------------------------------------------------------------------------


def _row(result: Result) -> tuple[object, ...]:
    topic = (result.topic,) if isinstance(result, TopicReceipt | TopicFailedItem) else ()
    if isinstance(result, FailedItem):
        return *topic, None, None, _failure(result)
    return *topic, result.partition, result.offset, None


def _failure(item: FailedItem) -> str:
    perhaps = " (it may still have been written)" if item.error.written == "unknown" else ""
    return harmless(f"{item.error.kafka_error or 'error'}: {item.error.message}{perhaps}")


def _where(results: Sequence[Result]) -> str:
    """Returns a text such as `500 acknowledged, 3 failed, partition 2 offsets 0-499`."""
    offsets: dict[tuple[str, int], list[int]] = {}
    failed = 0
    for result in results:
        if isinstance(result, FailedItem):
            failed += 1
        else:
            topic = f"{result.topic} " if isinstance(result, TopicReceipt) else ""
            known = offsets.setdefault((topic, result.partition), [])
            if result.offset is not None:
                known.append(result.offset)
    places = [
        f"{topic}partition {partition}{_span(known)}" for (topic, partition), known in sorted(offsets.items())
    ]
    return ", ".join([_sum(len(results) - failed, failed, what=""), *places])


def _with_line(chunk: Chunk, message: str) -> str:
    """Returns the message with the user's line number, in place of the sidecar's record index."""
    found = _PLACE.match(message)
    if found is None:
        return f"{chunk.name}: {message}"
    return f"line {chunk.first + int(found['index'])}: {message[found.end() :]}"


def _span(offsets: Sequence[int]) -> str:
    if not offsets:
        return ""
    first, last = min(offsets), max(offsets)
    return f" offset {first}" if first == last else f" offsets {first}-{last}"


def _sum(acknowledged: int, failed: int, what: str = " records") -> str:
    reported = f"{acknowledged}{what} acknowledged"
    return f"{reported}, {failed} failed" if failed else reported
