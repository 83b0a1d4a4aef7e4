"""The parts of a PromQL query: its metrics, the labels that it compares, and those that it groups by.

    terms_of('sum by (reason) (rate(x_total{code="1"}[5m]))')
    [Term("x_total", {"code": ("=", "1")}, grouped_by={"reason"})]

A label that a group or a match keeps must be one of every metric below it; otherwise the grouping is wrong.
Grafana's variables are replaced first, since they are no PromQL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import promql_parser as promql

_VARIABLES: Final = {"$__rate_interval": "5m", "$namespace": ".*", "$pod": ".*"}


@dataclass(slots=True)
class Term:
    """One selector of a query. `matchers` are (operator, value) by label."""

    metric: str
    matchers: dict[str, tuple[str, str]] = field(default_factory=dict)
    grouped_by: set[str] = field(default_factory=set)

    @property
    def labels(self) -> set[str]:
        return self.grouped_by | set(self.matchers)

    @property
    def wanted(self) -> dict[str, str]:
        """The labels that must have one certain value."""
        return {label: value for label, (operator, value) in self.matchers.items() if operator == "="}


def in_place(query: str) -> str:
    """The query with what Grafana would put for its variables. Raises ValueError for one nobody knows."""
    for variable, value in _VARIABLES.items():
        query = query.replace(variable, value)
    if "$" in query:
        raise ValueError(f"a variable that the dashboard does not have: {query}")
    return query


def terms_of(query: str) -> list[Term]:
    """The selectors of a query, in order. Raises ValueError for what is no PromQL."""
    return _terms(promql.parse(in_place(query)))


def _terms(expression: object) -> list[Term]:
    match expression:
        case promql.VectorSelector() | promql.MatrixSelector():
            return [_selected(expression)]
        case promql.AggregateExpr():
            return _grouped(_terms(expression.expr), _labels(expression.modifier))
        case promql.BinaryExpr():
            terms = _terms(expression.lhs) + _terms(expression.rhs)
            return _grouped(terms, _labels(expression.modifier and expression.modifier.matching))
        case promql.Call():
            return [term for argument in expression.args for term in _terms(argument)]
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return _terms(expression.expr)
        case promql.NumberLiteral() | promql.StringLiteral():
            return []
    raise TypeError(f"a kind of PromQL that nobody has thought of: {type(expression).__name__}")


def _selected(selector: promql.VectorSelector | promql.MatrixSelector) -> Term:
    if isinstance(selector, promql.MatrixSelector):
        selector = selector.vector_selector
    matchers = {one.name: (_OPERATORS[str(one.op)], one.value) for one in selector.matchers.matchers}
    return Term(selector.name or matchers["__name__"][1], matchers)


_OPERATORS: Final = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}


def _labels(modifier: object) -> set[str]:
    """The labels of `by`, `without`, `on` or `ignoring`."""
    return set(getattr(modifier, "labels", ()))


def _grouped(terms: list[Term], labels: set[str]) -> list[Term]:
    for term in terms:
        term.grouped_by |= labels
    return terms


def names_in_legend(legend: str) -> set[str]:
    """The labels that Grafana puts into a legend."""
    return set(re.findall(r"\{\{(\w+)\}\}", legend))
