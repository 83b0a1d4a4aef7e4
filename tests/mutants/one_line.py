"""One-line mutants of a source file: the usual operators over `ast`, each a replacement of a span of text.

The rest of the file stays as it is. Code without effect on behaviour is left alone: docstrings, annotations,
logged texts, raised errors, asserts, `__repr__`, decorators of classes, and code for type checkers
(protocols, literals, names of type variables, types of casts).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_COMPARED: Final[dict[type[ast.cmpop], tuple[str, ...]]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
_CALCULATED: Final[dict[type[ast.operator], str]] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.FloorDiv: "*",
    ast.Div: "*",
    ast.Mod: "//",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
#: A number from here on is a limit or a time: one more or less has no effect, but half and double have.
_LARGE: Final = 64
#: Calls whose first argument only type checkers read.
_TYPING_CALLS: Final = frozenset({"TypeVar", "ParamSpec", "NewType", "cast"})
_LOG_CALLS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """One replacement: bytes `start` to `end` of the file become `text`."""

    path: str
    line: int
    start: int
    end: int
    text: str
    was: str
    """The line as it is, without its indent; what the list of equivalents names."""
    becomes: str

    def of(self, source: bytes) -> bytes:
        """The whole source with the fault in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants(path: str, source: bytes, lines: Container[str] | None = None) -> list[Mutant]:
    """All mutants of a file that compile, in the order of their places.

    With `lines` only those of lines with these texts, without their indent: each mutant is compiled, and a
    whole file has thousands.
    """
    found = _Mutator(path, source, lines)
    found.visit(ast.parse(source))
    return sorted(set(found.mutants), key=lambda mutant: (mutant.start, mutant.end, mutant.text))


class _Mutator(ast.NodeVisitor):
    """Walks one file; the order of the visit does not matter."""

    def __init__(self, path: str, source: bytes, wanted: Container[str] | None) -> None:
        self._path = path
        self._wanted = wanted
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self.mutants: list[Mutant] = []

    def _span(self, node: ast.expr | ast.stmt | ast.ExceptHandler) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _replace(self, start: int, end: int, text: str) -> None:
        line = self._source.count(b"\n", 0, start)
        was = self._lines[line].decode().strip()
        if self._wanted is not None and was not in self._wanted:
            return
        mutated = self._source[:start] + text.encode() + self._source[end:]
        try:
            compile(mutated, self._path, "exec")
        except (SyntaxError, ValueError):
            return
        becomes = mutated[self._starts[line] :].split(b"\n", 1)[0].decode().strip()
        self.mutants.append(Mutant(self._path, line + 1, start, end, text, was, becomes))

    def _become(self, node: ast.expr | ast.stmt, text: str) -> None:
        self._replace(*self._span(node), text)

    def _operator(self, left: ast.expr, right: ast.expr, text: str) -> None:
        """Replaces the operator between two operands; brackets are kept."""
        start, end = self._span(left)[1], self._span(right)[0]
        between = self._source[start:end].decode()
        kept = between.strip("() \n\t")
        if not kept or "#" in between:
            return
        begin = start + len(between[: between.index(kept)].encode())
        self._replace(begin, begin + len(kept.encode()), text)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for place, operator in enumerate(node.ops):
            for other in _COMPARED[type(operator)]:
                self._operator(operands[place], operands[place + 1], other)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = "or" if isinstance(node.op, ast.And) else "and"
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._operator(left, right, other)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _CALCULATED:
            self._operator(node.left, node.right, _CALCULATED[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._become(node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._become(node, str(not value))
        elif isinstance(value, int):
            others = (value * 2, value // 2) if value >= _LARGE else (value + 1, value - 1)
            for other in others:
                self._become(node, str(other))
        elif isinstance(value, str | bytes) and value:
            self._become(node, '""' if isinstance(value, str) else 'b""')

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == "Literal":
            return
        self.visit(node.value)
        # The tuple that struct unpacks has one value where it is asked for so: the first is the last.
        function = node.value.func if isinstance(node.value, ast.Call) else None
        if not (isinstance(function, ast.Attribute) and function.attr.startswith("unpack")):
            self.visit(node.slice)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Without its decorators: whether a dataclass is frozen keeps programmers from mistakes.

        Nobody calls what a protocol describes.
        """
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            return
        for statement in node.body:
            self.visit(statement)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Left alone: its parts have no places of their own before Python 3.12."""

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _LOG_CALLS:
            return
        if isinstance(function, ast.Name) and function.id in _TYPING_CALLS:
            for argument in node.args[1:]:
                self.visit(argument)
            return
        if isinstance(function, ast.Name) and function.id in ("min", "max"):
            self._become(function, "max" if function.id == "min" else "min")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._become(node.test, "True")
        self._become(node.test, "False")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._become(node.test, "True")
        self._become(node.test, "False")
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._become(node.test, "False")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        # None is as false as False, to nearly all who ask.
        nothing = isinstance(node.value, ast.Constant) and node.value.value in (None, False)
        if node.value is not None and not nothing:
            self._become(node, "return None")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._become(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._become(node, "break")

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Constant):
            return
        if isinstance(value, ast.Call):
            function = value.func
            if isinstance(function, ast.Attribute) and function.attr in _LOG_CALLS:
                return
            self._become(node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in _CALCULATED:
            self._operator(node.target, node.value, f"{_CALCULATED[type(node.op)]}=")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            self._become(node, "pass")
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self._become(node.type, "()")
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leaves asserts alone: they are for mypy, and decide nothing."""

    def visit_Raise(self, node: ast.Raise) -> None:
        self._become(node, "pass")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name != "__repr__":
            self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in _defaults(node.args):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)


def _defaults(arguments: ast.arguments) -> Iterator[ast.expr]:
    yield from arguments.defaults
    yield from (default for default in arguments.kw_defaults if default is not None)
