"""Python modules as text: their lines of code and of docstrings, their functions, classes and imports.

`scripts/house` and the rules of tests/unit look at the code base through these, without importing it. Only the
standard library is needed.
"""

import ast
import re
from collections.abc import Callable, Container, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Children: TypeAlias = Callable[[ast.AST], Iterator[ast.AST]]


@cache
def functions_in(path: str) -> frozenset[str]:
    """The functions that a file of the repository defines at its top; none, if there is no such file."""
    file = Path(__file__).parents[1] / path
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return frozenset(re.findall(r"^(?:async )?def (\w+)", text, re.MULTILINE))


class Import(NamedTuple):
    """One import, or one module that `later` names."""

    module: str
    """The absolute name of what is imported; a module of the tree where there is one of that name."""
    line: int
    inline: bool
    """Stands in a function."""
    typing: bool
    """Stands under `if TYPE_CHECKING:`."""
    later: bool = False
    """Is the string of a call of `daemon.kit.later.later`."""

    def under(self, names: set[str]) -> bool:
        """Whether what is imported is one of these modules, or in one of these packages."""
        return any(self.module == name or self.module.startswith(name + ".") for name in names)


class Module:
    """One file, parsed once; a package goes by its own name."""

    def __init__(self, name: str, source: str, *, is_package: bool = False) -> None:
        """Take the text as it is; it is parsed when something of it is asked for."""
        self.name = name
        self.source = source
        self.is_package = is_package

    @property
    def stem(self) -> str:
        """The name of the file, without its suffix."""
        return "__init__" if self.is_package else self.name.rpartition(".")[2]

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed text."""
        return ast.parse(self.source)

    @cached_property
    def _statements(self) -> list[ast.AST]:
        return list(_inside(self.tree))

    @cached_property
    def docstrings(self) -> list[tuple[int, str]]:
        """Every string that stands alone, of constants and fields, too, with the number of its line."""
        return [
            (node.lineno, node.value.value)
            for node in self._statements
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ]

    @cached_property
    def docstring_lines(self) -> set[int]:
        """Numbers of the lines that belong to docstrings, those of constants and fields included."""
        starts = {line for line, _ in self.docstrings}
        found: set[int] = set()
        for node in self._statements:
            if isinstance(node, ast.Expr) and node.lineno in starts:
                found.update(_lines(node))
        return found

    @cached_property
    def code_lines(self) -> int:
        """How many lines are neither blank nor comment nor docstring."""
        lines = self.source.split("\n")
        written = {number for number, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"}
        rest = "\n".join(line for number, line in enumerate(lines, 1) if number not in self.docstring_lines)
        if '"""' in rest or "'''" in rest:
            for node in ast.walk(self.tree):
                match node:
                    case ast.JoinedStr() | ast.Constant(value=str()) if node.end_lineno != node.lineno:
                        # Nothing inside a string is blank, or a comment.
                        written.update(_lines(node))
        return len(written - self.docstring_lines)

    def classes(self) -> Iterator[ast.ClassDef]:
        """Every class, nested ones included."""
        return (node for node in self._statements if isinstance(node, ast.ClassDef))

    def functions(self) -> Iterator[tuple[str, int]]:
        """Name and length of every function that does something; a nested one also counts for its host."""
        for node in self._statements:
            if isinstance(node, Function):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                # A stub of a Protocol is no short function: counting them would make room for long ones.
                if any(not _is_stub(statement) for statement in body):
                    yield f"{node.name}:{node.lineno}", _length(node, body)

    def imports(self, modules: Container[str]) -> list[Import]:
        """Everything that is imported.

        Args:
            modules: the names of all modules of the tree: of `from a import b`, b may be one.
        """
        # Only `later` stands in an expression, and to look through all of these takes most of the time.
        below = ast.iter_child_nodes if "later(" in self.source else _children
        return list(self._walk(self.tree, modules, below, inline=False, typing=False))

    def _walk(
        self, node: ast.AST, modules: Container[str], below: Children, *, inline: bool, typing: bool
    ) -> Iterator[Import]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for target in self._targets(node, modules):
                yield Import(target, node.lineno, inline, typing)
            return
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                for guarded in node.body:
                    yield from self._walk(guarded, modules, below, inline=inline, typing=True)
                for other in node.orelse:
                    yield from self._walk(other, modules, below, inline=inline, typing=typing)
                return
            case ast.Call(func=ast.Name(id="later"), args=[ast.Constant(value=str(target)), *_]):
                yield Import(target, node.lineno, inline, typing, later=True)
        inline = inline or isinstance(node, Function | ast.Lambda)
        for child in below(node):
            yield from self._walk(child, modules, below, inline=inline, typing=typing)

    def _targets(self, node: ast.Import | ast.ImportFrom, modules: Container[str]) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        base = node.module or ""
        if node.level:
            above = self.name.split(".") if self.is_package else self.name.split(".")[:-1]
            above = above[: len(above) - node.level + 1]
            base = ".".join([*above, base] if base else above)
        for alias in node.names:
            # In other people's packages we cannot know whether b is a module: rules compare prefixes.
            inner = f"{base}.{alias.name}"
            yield inner if inner in modules or not base.startswith("daemon") else base


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The statements directly in a node, and each `except` and `case`."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        # The body of a lambda is an expression.
        yield from found if isinstance(found := getattr(node, part, ()), list) else ()


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement in a node, and every `except` and `case`."""
    for child in _children(node):
        yield child
        yield from _inside(child)


def _lines(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _is_stub(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _length(node: Function, body: list[ast.stmt]) -> int:
    docstring = node.body[0]
    spared = 0 if body is node.body else (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return (node.end_lineno or node.lineno) - node.lineno + 1 - spared


def read(root: Path, folder: str) -> dict[str, Module]:
    """Every module below a folder of a directory, by its name."""
    found = {}
    for path in sorted((root / folder).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        short = name.removesuffix(".__init__")
        found[short] = _module(short, path.read_text(encoding="utf-8"), short != name)
    return found


@cache
def _module(name: str, source: str, is_package: bool) -> Module:
    """One module for all rules of a run: parsed once."""
    return Module(name, source, is_package=is_package)


def circles(needs: dict[str, set[str]]) -> list[list[str]]:
    """Groups of names of which each needs all others, by way of others or not; Tarjan's algorithm."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        open_.append(name)
        for other in sorted(needs[name] & needs.keys()):
            if other not in number:
                visit(other)
            if other in open_:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            group = open_[open_.index(name) :]
            del open_[open_.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(needs):
        if name not in number:
            visit(name)
    return found
