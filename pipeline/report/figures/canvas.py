"""Converts a matplotlib figure to an <svg> for the page: colours, fonts, ids, descriptions.

matplotlib writes colours as hexadecimal numbers. Here a figure is drawn with placeholder numbers, one for
each role (PAINT), and the SVG gets the style sheet's variables instead. So one drawing is right in light
mode, in dark mode and on paper. Text stays text; ids are reproducible and unique to their figure.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

#: Hues that most people with colour blindness can tell apart too, in light and dark mode (style.css).
SERIES: Final = 8
#: Steps of a heat map, from close to nothing to the maximum.
HEATS: Final = 7

_ROLES: Final = (
    *("ink", "ink-soft", "line", "surface", "bad", "warn", "good", "accent"),
    *(f"series-{n}" for n in range(SERIES)),
    *(f"heat-{n}" for n in range(HEATS)),
    *(f"heat-ink-{n}" for n in range(HEATS)),
    "other",
)
#: The colour that represents a role while matplotlib draws.
PAINT: Final = {role: f"#0001{n:02x}" for n, role in enumerate(_ROLES)}
_ROLE_OF: Final = {paint: role for role, paint in PAINT.items()}

#: Not those of the user's matplotlibrc, which may name another time zone than UTC.
_DEFAULTS: Final[dict[Any, Any]] = {k: v for k, v in mpl.rcParamsDefault.items() if k != "backend"}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 12.0,
    "axes.edgecolor": PAINT["line"],
    "axes.labelcolor": PAINT["ink-soft"],
    "axes.facecolor": "none",
    "axes.grid": False,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.unicode_minus": False,
    "figure.facecolor": "none",
    "grid.color": PAINT["line"],
    "grid.linewidth": 0.8,
    "hatch.color": PAINT["surface"],
    "hatch.linewidth": 1.2,
    "legend.frameon": False,
    "legend.labelcolor": PAINT["ink"],
    "text.color": PAINT["ink"],
    "xtick.color": PAINT["line"],
    "xtick.labelcolor": PAINT["ink-soft"],
    "ytick.color": PAINT["line"],
    "ytick.labelcolor": PAINT["ink"],
    "ytick.major.size": 0.0,
}
#: matplotlib's points per inch; a point is a pixel of the SVG.
_POINTS: Final = 72

_NUMBER: Final = re.compile(r"#0001[0-9a-f]{2}")
_ID: Final = re.compile(r'(\bid="|xlink:href="#|url\(#)')
_FONT: Final = re.compile(r"(font: [^;\"]*?\dpx|font-family:) [^;\"]+")
_SIZE: Final = re.compile(r'<svg [^>]*?width="(?P<width>[\d.]+)pt"[^>]*?viewBox="(?P<box>[^"]+)"[^>]*>')


class Drawing:
    """A figure with one or more plots below each other, `width` by `height` pixels; used once.

    drawing = Drawing("c1-skew", 800, 200)
    axes = drawing.axes()
    …
    drawing.svg("Leaders by broker", "Broker 1 leads 20 of 72 partitions, …")
    """

    def __init__(self, name: str, width: float, height: float) -> None:
        self._name: Final = name
        self._style: Final = mpl.rc_context({**_DEFAULTS, **_STYLE, "svg.hashsalt": name})
        # Artists read the style when they are created, some also when they are drawn.
        self._style.__enter__()
        self.figure: Final = Figure(figsize=(width / _POINTS, height / _POINTS), layout="constrained")
        FigureCanvasSVG(self.figure)

    def axes(self, rows: int = 1, ratios: list[float] | None = None) -> list[Axes]:
        """Returns plots below each other with a common x axis."""
        grid = self.figure.subplots(rows, 1, sharex=True, squeeze=False, height_ratios=ratios)
        return [row[0] for row in grid]

    def svg(self, title: str, description: str) -> str:
        """Returns the element, for a page with style.css. Both texts are for screen readers."""
        written = io.StringIO()
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        try:
            with warnings.catch_warnings():
                # The browser's fonts are used, and they have more glyphs than matplotlib's.
                warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from")
                self.figure.savefig(written, format="svg", metadata=metadata)
        finally:
            self._style.__exit__(None, None, None)
        return _for_page(written.getvalue(), self._name, title, description)


def _for_page(drawn: str, name: str, title: str, description: str) -> str:
    svg = drawn[drawn.index("<svg ") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Removes a global rule, which would apply to the whole page: style.css has it.
    svg = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = _NUMBER.sub(lambda found: f"var(--{_ROLE_OF.get(found[0], 'ink')})", svg)
    svg = _ID.sub(lambda found: f"{found[1]}{name}-", svg)
    svg = _FONT.sub(r"\1 var(--sans)", svg)
    found = _SIZE.match(svg)
    assert found is not None, svg[:300]
    words = (
        f'<title id="{name}-title">{html.escape(title)}</title>'
        f'<desc id="{name}-desc">{html.escape(description)}</desc>'
    )
    opening = (
        f'<svg class="plot" role="img" aria-labelledby="{name}-title" aria-describedby="{name}-desc"'
        f' viewBox="{found["box"]}" width="{float(found["width"]):.0f}">'
    )
    return opening + words + svg[found.end() :]


def colours(keys: Iterator[int] | list[int]) -> dict[int, str]:
    """Returns a paint for each key, by its position; those beyond the last hue share one."""
    return {
        key: PAINT[f"series-{place}"] if place < SERIES else PAINT["other"] for place, key in enumerate(keys)
    }
