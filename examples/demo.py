"""Starts Pilotfish on a cluster inside its process, asks it what `curl` would, shows the answers, stops it.

Run by `make demo`. Needs nothing but the environment of `make setup`.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import urllib.request
from http.client import HTTPResponse

API = "http://127.0.0.1:8085"
RECORDS = {
    "key_format": "text",
    "records": [{"key": "customer-7", "value": {"total": 12.50}}, {"value": "no key"}],
}
STEPS: tuple[tuple[str, list[str]], ...] = (
    ("Which broker leads the partition of this key?", [f"{API}/v1/topics/demo/leader?key=customer-7"]),
    (
        "Produce two records, one with that key.",
        [f"{API}/v1/topics/demo/records", "-H", "Content-Type: application/json", "-d", json.dumps(RECORDS)],
    ),
    ("How is it doing?", [f"{API}/v1/status"]),
)


def ask(arguments: list[str]) -> str:
    """What curl would print for these arguments."""
    url = next(a for a in arguments if a.startswith("http"))
    data = arguments[arguments.index("-d") + 1].encode() if "-d" in arguments else None
    headers = {"Content-Type": "application/json"} if data else {}
    with urllib.request.urlopen(
        urllib.request.Request(url, data=data, headers=headers), timeout=30
    ) as answer:
        assert isinstance(answer, HTTPResponse)
        return json.dumps(json.load(answer), indent=2)


def main() -> int:
    sidecar = subprocess.Popen([sys.executable, "-m", "service", "serve", "--embedded"])
    try:
        subprocess.run([sys.executable, "-m", "service", "wait", "--timeout", "30"], check=True)
        for title, arguments in STEPS:
            print(f"\n# {title}\n$ {shlex.join(['curl', '-s', *arguments])}\n{ask(arguments)}")
    finally:
        sidecar.terminate()
        code = sidecar.wait(timeout=30)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
