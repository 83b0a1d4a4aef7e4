"""The kinds of panels and queries of the dashboard, for uniform panels.

A query selects the sidecars by the variables namespace and pod: `chosen` writes that. A panel has a title for
the content, and a description for its interpretation. Legends have only the labels in which the lines differ.
Outside Kubernetes there is no pod: both variables match the empty label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The data source, from the variable of this name.
DATASOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")

#: Grafana's own: at least four scrapes long, at any resolution.
RATE_INTERVAL: Final = "$__rate_interval"

GREEN: Final = "green"
ORANGE: Final = "orange"
RED: Final = "red"

#: Of the 24 columns of Grafana's grid: stats come six in a row, graphs three.
_STAT_WIDTH: Final = 4
_STAT_HEIGHT: Final = 4
_GRAPH_WIDTH: Final = 8
_GRAPH_HEIGHT: Final = 8

Query = tuple[str, str]


def chosen(metric: str, *matchers: str) -> str:
    """Returns the metric of the selected sidecars."""
    return metric + "{" + ", ".join(('namespace=~"$namespace"', 'pod=~"$pod"', *matchers)) + "}"


def rate(metric: str, *matchers: str, by: Sequence[str] = ()) -> str:
    """Returns a counter's growth per second, summed over all but these labels."""
    together = f"sum by ({', '.join(by)}) " if by else "sum"
    return f"{together}(rate({chosen(metric, *matchers)}[{RATE_INTERVAL}]))"


def quantile(share: float, histogram: str, *matchers: str, by: Sequence[str] = ()) -> str:
    """Returns a quantile; `share` is from 0 to 1, `histogram` has no suffix."""
    labels = ", ".join(("le", *by))
    buckets = f"rate({chosen(f'{histogram}_bucket', *matchers)}[{RATE_INTERVAL}])"
    return f"histogram_quantile({share}, sum by ({labels}) ({buckets}))"


def quantiles(histogram: str, *matchers: str) -> list[Query]:
    """Returns the queries of three quantiles."""
    return [(quantile(share, histogram, *matchers), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99)]


def mean(histogram: str, *matchers: str, by: Sequence[str] = ()) -> str:
    """Returns the mean of the observed values; `histogram` has no suffix."""
    return f"{rate(f'{histogram}_sum', *matchers, by=by)} / {rate(f'{histogram}_count', *matchers, by=by)}"


def stat_panel(
    title: str,
    description: str,
    expression: str,
    *,
    unit: str = "short",
    steps: Sequence[tuple[float, str]] = (),
    below: str = GREEN,
    no_value: str = "-",
) -> stat.Panel:
    """Returns a panel with the present number. Colours: `below` up to the first of `steps`, then theirs."""
    thresholds = [Threshold(None, below), *(Threshold(value, color) for value, color in steps)]
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .no_value(no_value)
        .color_scheme(dashboard_builders.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .thresholds(dashboard_builders.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(thresholds))
        .color_mode(common.BigValueColorMode.BACKGROUND)
        .graph_mode(common.BigValueGraphMode.NONE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .height(_STAT_HEIGHT)
        .span(_STAT_WIDTH)
        .with_target(prometheus.Dataquery().expr(expression).instant().ref_id("A").datasource(DATASOURCE))
    )


def graph(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    stacked: bool = False,
    exemplars: bool = False,
    most: float | None = None,
) -> timeseries.Panel:
    """Returns lines over time, one or more per (expression, legend). `exemplars`: dots that link traces."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .fill_opacity(30 if stacked else 5)
        .show_points(common.VisibilityMode.NEVER)
        .legend(
            common_builders.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.TABLE)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common_builders.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.DESCENDING)
        )
        .height(_GRAPH_HEIGHT)
        .span(_GRAPH_WIDTH)
    )
    if most is not None:
        panel.max(most)
    if stacked:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    for number, (expression, legend) in enumerate(queries):
        panel.with_target(
            prometheus.Dataquery()
            .expr(expression)
            .range()
            .legend_format(legend)
            .exemplar(exemplars)
            .ref_id(chr(ord("A") + number))
            .datasource(DATASOURCE)
        )
    return panel
