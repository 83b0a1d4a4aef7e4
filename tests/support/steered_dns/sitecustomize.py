"""Puts a steered socket.getaddrinfo into a process; Python imports it at its start. See `__init__.py`.

An address of a steered name is looked up by the true getaddrinfo, which gives it the form that was asked for.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

_look_up = socket.getaddrinfo


def _answer_for(name: Any) -> Any:
    with open(os.environ["STEERED_DNS_ANSWERS"], encoding="utf-8") as file:
        return json.load(file).get(name)


def _steered(host: Any, *arguments: Any, **named: Any) -> list[Any]:
    name = host.decode() if isinstance(host, bytes) else host
    addresses = _answer_for(name)
    if isinstance(addresses, str):  # a pipe that nobody opens before there is an answer
        with open(addresses, "rb"):
            addresses = _answer_for(name)
    if addresses is None:
        return _look_up(host, *arguments, **named)
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return [found for address in addresses for found in _look_up(address, *arguments, **named)]


if "STEERED_DNS_ANSWERS" in os.environ:
    socket.getaddrinfo = _steered
