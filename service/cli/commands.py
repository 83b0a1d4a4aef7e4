"""The commands that ask a running sidecar: topics, topic, leader, produce, status, wait, healthcheck.

Each prints a table, or with --json the sidecar's own answer. Exit code 0 when all was done, 1 when something was
refused or failed, 2 for a wrong call. `service/__main__.py` hangs them into the `pilotfish` group.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import TYPE_CHECKING, Final, TypeVar, cast

import click

from service.cli.answers import Leader, Produced, Status, Topic, Topics, produced_row, topic_rows
from service.cli.sidecar import Sidecar, SidecarFailed
from service.cli.tables import render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_Command = TypeVar("_Command", bound="Callable[..., object]")
