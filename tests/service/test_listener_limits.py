"""How many connections fit into a process, and requests cut into reads in every possible way."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys

import pytest

from service.asgi import Receive, Scope, Send, respond
from tests.support.served import LOOPS, Served, on_loop

HOST = b"Host: localhost\r\n"

FIT = """
import resource, sys
from service.listener.api_server import connections_that_fit
soft, hard, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(connections_that_fit(wanted), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "fit", "raised"),
    [
        (1_024, 1_024, 500, 500, 1_024),
        (512, 4_096, 1_000, 1_000, 1_256),
        (512, 1_024, 10_000, 768, 1_024),
        (256, 256, 10_000, 128, 256),
    ],
)
def test_the_limit_of_files_is_raised_as_far_as_it_goes_and_the_rest_is_done_without(
    soft: int, hard: int, wanted: int, fit: int, raised: int
) -> None:
    command = [sys.executable, "-c", FIT, str(soft), str(hard), str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(fit), str(raised)]
    told = f"max_connections: {wanted} are wanted, and {fit} fit into the limit of {raised} files (ulimit -n)"
    assert (told in done.stderr) == (fit != wanted)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    more = True
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        body += message["body"]
        more = message["more_body"]
    text = json.dumps([scope["method"], scope["path"], body.decode()]).encode()
    await respond(send, 200, [(b"content-length", b"%d" % len(text))], text)


def requests(chance: random.Random) -> tuple[bytes, list[list[str]]]:
    """Some requests in a row, and what is to be said to each."""
    written, expected = b"", []
    for number in range(chance.randint(1, 12)):
        path, body = f"/{number}", b"x" * chance.choice([0, 1, 7, 3_000])
        match chance.randrange(4):
            case 0:
                written += b"GET %s HTTP/1.1\r\n%s\r\n" % (path.encode(), HOST)
                expected.append(["GET", path, ""])
                continue
            case 1:
                head = b"Content-Length: %d\r\n\r\n" % len(body)
                written += b"POST %s HTTP/1.1\r\n%s%s%s" % (path.encode(), HOST, head, body)
            case 2:
                pieces = [body[at : at + 1_000] for at in range(0, len(body), 1_000)]
                chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
                head = b"Transfer-Encoding: chunked\r\n\r\n"
                trailer = b"0\r\nX-Trailer: y\r\n\r\n"
                written += b"POST %s HTTP/1.1\r\n%s%s%s%s" % (path.encode(), HOST, head, chunks, trailer)
            case 3:
                head = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(body)
                written += b"POST %s HTTP/1.1\r\n%s%s%s" % (path.encode(), HOST, head, body)
        expected.append(["POST", path, body.decode()])
    return written, expected


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(25))
def test_requests_are_understood_however_they_are_cut_into_reads(loop: str, seed: int) -> None:
    chance = random.Random(seed)
    written, expected = requests(chance)
    cuts = sorted(chance.sample(range(len(written)), min(len(written), chance.choice([0, 1, 5, 40]))))

    async def scenario() -> list[object]:
        async with Served(echo) as served:
            caller = await served.call()
            for begin, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
                caller.send(written[begin:end])
                await asyncio.sleep(0)
            return [json.loads((await caller.answer())[2]) for _ in expected]

    assert on_loop(loop, scenario()) == expected
