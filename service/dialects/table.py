"""The table of dialects, by their names in the setting `dialects`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from service.base.settings import DIALECTS
from service.dialects import cloudevents, dapr, rest_v2, rest_v3
from service.dialects.dialect import Dialect
from service.sidecar.sidecar import Sidecar

_MAKE: Final[Mapping[str, Callable[[Sidecar], Dialect]]] = dict(
    zip(DIALECTS, (rest_v2.dialect, rest_v3.dialect, cloudevents.dialect, dapr.dialect), strict=True)
)


def dialects_of(sidecar: Sidecar) -> list[Dialect]:
    """Returns the dialects that the settings enable."""
    return [_MAKE[name](sidecar) for name in sidecar.settings.dialects]
