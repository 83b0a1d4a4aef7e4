"""What a start leaves out until somebody needs it: time and resident memory of each sidecar.

`benchmarks/footprint.py` has the seconds and megabytes.
"""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys

from client_core.client.host_resolver import DefaultHostResolver
from client_core.network.transport_layer import open_socket
from service.base.settings import DIALECTS
from service.wire.schemas import AnswerModel
from tests.support.http_app import HttpApp

def made(model):
    return model.__pydantic_complete__ + sum(map(made, model.__subclasses__()))

app = HttpApp(dialects=DIALECTS).app
assert len(AnswerModel.__subclasses__()) > 20
print("validators of answers:", made(AnswerModel))
app.api.openapi()
print("the document's are made:", made(AnswerModel) > 0)

assert DefaultHostResolver().resolve("127.0.0.1") == ("127.0.0.1",)
DefaultHostResolver().resolve("localhost")
try:
    open_socket(("127.0.0.1", 1), -1, -1)[0].close()
except OSError:
    pass
print("international names:", "encodings.idna" in sys.modules)
"""


def test_a_start_makes_no_validators_of_answers_and_loads_no_tables_of_names() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "validators of answers: 0",
        "the document's are made: True",
        "international names: False",
    ]
