"""Dotted names in docstrings and documents, as `kit.waiting.Watch`, name things that exist in daemon/."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.modules import Module, read

ROOT = Path(__file__).resolve().parents[2]
DOTTED = re.compile(r"`(?:daemon\.)?([a-z_]+(?:\.\w+)+)(?:\(\))?`")


def defined(body: list[ast.stmt]) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The names that a module or class defines, each with the body of its class."""
    for node in body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node.body if isinstance(node, ast.ClassDef) else []
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from ((ast.unparse(target), []) for target in targets)
            case ast.If():
                yield from defined(node.body)


def exists(name: str, modules: Mapping[str, Module]) -> bool:
    """Whether a name below daemon/ is a module, or is defined in one, in a class there or deeper."""
    parts = f"daemon.{name}".split(".")
    depth = max(number for number in range(1, len(parts) + 1) if ".".join(parts[:number]) in modules)
    body = modules[".".join(parts[:depth])].tree.body
    for part in parts[depth:]:
        names = dict(defined(body))
        if part not in names:
            return False
        body = names[part]
    return True


def dotted(text: str, modules: Mapping[str, Module]) -> set[str]:
    """The names in backticks that begin with a room."""
    return {name for name in DOTTED.findall(text) if f"daemon.{name.split('.')[0]}" in modules}


def keys() -> Iterator[str]:
    """Configuration keys, of which some sections are called as rooms are."""
    schema = json.loads((ROOT / "config/mcpd.schema.json").read_text())
    for section in ("State", "Summaries"):
        yield from (f"{section.lower()}.{key}" for key in schema["$defs"][section]["properties"])


def test_names_in_docstrings_and_documents_exist() -> None:
    modules = read(ROOT, "daemon")
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    texts = [(page.name, page.read_text(encoding="utf-8")) for page in pages]
    texts += [(module.name, text) for module in modules.values() for _, text in module.docstrings]
    others = {*keys(), "state.db"}  # a file
    files = (".py", ".toml")
    found = [
        f"{place}: {name}"
        for place, text in texts
        for name in sorted(dotted(text, modules) - others)
        if not name.endswith(files) and not exists(name, modules)
    ]
    assert not found, "\n".join(found)


def test_a_name_that_is_gone_is_found() -> None:
    source = "LIMIT = 1\nif True:\n    class A:\n        size: int\n        def run(self): pass\n"
    modules = {"daemon": Module("daemon", ""), "daemon.kit": Module("daemon.kit", source)}
    text = "`kit.LIMIT` `kit.A.size` `daemon.kit.A.run()` `kit.B` `kit.A.stop` `attrs.evolve` kit.C"
    names = dotted(text, modules)
    assert {name for name in names if not exists(name, modules)} == {"kit.B", "kit.A.stop"}
    assert len(names) == 5
