"""A test of the service may be a coroutine: it runs on a loop of its own."""

from __future__ import annotations

import inspect

import pytest

from tests.support.http_app import run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs it to its end, which comes within the patience of `run`."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    names = inspect.signature(pyfuncitem.function).parameters
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
