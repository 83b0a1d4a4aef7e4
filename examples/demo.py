"""Starts Pilotfish on a Kafka inside its process, asks it what `curl` would, shows the answers, stops it.

Run by `make demo`. Takes free ports, so that it can't meet another sidecar.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import urllib.request

SIDECAR = [sys.executable, "-m", "service", "serve", "--embedded", "--log-level", "warning"]
FREE_PORTS = ["--api-port", "0", "--admin-port", "0"]
RECORDS = {
    "key_format": "text",
    "records": [{"key": "customer-7", "value": {"total": 12.50}}, {"value": "no key"}],
}


def ask(url: str, data: str | None = None) -> str:
    """Shows the curl command, and returns what it would print."""
    body = ["-H", "Content-Type: application/json", "-d", data] if data else []
    print(f"$ {shlex.join(['curl', '-s', url, *body])}")
    headers = {"Content-Type": "application/json"} if data else {}
    request = urllib.request.Request(url, data=data.encode() if data else None, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def show(api: str) -> None:
    topic = f"{api}/v1/topics/demo"
    print("\n# Which broker leads the partition of this key?")
    print(ask(f"{topic}/leader?key=customer-7"))
    print("\n# Produce two records, one with that key.")
    print(ask(f"{topic}/records", json.dumps(RECORDS)))
    print("\n# How is it doing? (a part of the answer)")
    status = json.loads(ask(f"{api}/v1/status"))
    print(
        f"state: {status['state']}, metadata {status['metadata']['age_ms']} ms old, "
        f"slow: {status['slow'] or 'nothing'}"
    )
    for node in status["nodes"]:
        print(f"broker {node['id']} at {node['host']}:{node['port']}: {node['state']}")
    produced = status["produce"]
    print(f"{produced['records']} records acknowledged, {produced['failed_records']} failed")


def main() -> int:
    with subprocess.Popen([*SIDECAR, *FREE_PORTS], stdout=subprocess.PIPE, text=True) as sidecar:
        assert sidecar.stdout is not None
        try:
            for line in sidecar.stdout:
                if line.rstrip().endswith("/v1/status"):
                    show(line.split()[-1].removesuffix("/v1/status"))
                    break
        finally:
            sidecar.terminate()
        return sidecar.wait(timeout=30)


if __name__ == "__main__":
    raise SystemExit(main())
