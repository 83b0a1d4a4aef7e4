"""Starts Pilotfish on a cluster inside its process, asks it what `curl` would, shows the answers, stops it.

Run by `make demo`. Needs nothing but the environment of `make setup`; takes free ports, so that it can't meet
another sidecar.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import urllib.request
from http.client import HTTPResponse

SIDECAR = [sys.executable, "-m", "service", "serve", "--embedded", "--log-level", "warning"]
FREE_PORTS = ["--api-port", "0", "--admin-port", "0"]
RECORDS = {
    "key_format": "text",
    "records": [{"key": "customer-7", "value": {"total": 12.50}}, {"value": "no key"}],
}


def steps(api: str) -> tuple[tuple[str, list[str]], ...]:
    """What to show, and curl's arguments for it."""
    records = [f"{api}/v1/topics/demo/records", "-H", "Content-Type: application/json", "-d"]
    return (
        ("Which broker leads the partition of this key?", [f"{api}/v1/topics/demo/leader?key=customer-7"]),
        ("Produce two records, one with that key.", [*records, json.dumps(RECORDS)]),
        ("How is it doing?", [f"{api}/v1/status"]),
    )


def ask(arguments: list[str]) -> str:
    """What curl would print for these arguments, on more than one line."""
    url = next(a for a in arguments if a.startswith("http"))
    data = arguments[arguments.index("-d") + 1].encode() if "-d" in arguments else None
    headers = {"Content-Type": "application/json"} if data else {}
    with urllib.request.urlopen(
        urllib.request.Request(url, data=data, headers=headers), timeout=30
    ) as answer:
        assert isinstance(answer, HTTPResponse)
        return json.dumps(json.load(answer), indent=2)


def api_of(sidecar: subprocess.Popen[str]) -> str | None:
    """Where the sidecar's API is, once it can be asked; None when it ended instead."""
    assert sidecar.stdout is not None
    for line in sidecar.stdout:
        if line.rstrip().endswith("/v1/status"):
            return line.split()[-1].removesuffix("/v1/status")
    return None


def main() -> int:
    with subprocess.Popen([*SIDECAR, *FREE_PORTS], stdout=subprocess.PIPE, text=True) as sidecar:
        try:
            api = api_of(sidecar)
            for title, arguments in steps(api) if api else ():
                print(f"\n# {title}\n$ {shlex.join(['curl', '-s', *arguments])}\n{ask(arguments)}")
        finally:
            sidecar.terminate()
        return sidecar.wait(timeout=30)


if __name__ == "__main__":
    raise SystemExit(main())
