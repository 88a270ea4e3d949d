"""The house has an order, and a machine watches it: which module may import which, and what from outside.

Each rule is a function from a `Tree` to the faults it finds. The same rules run over daemon/ and, further down,
over small made-up trees that they must refuse or accept.
"""

import ast
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from tests.modules import Import, Module, circles, read
from tests.unit.cases import cases, rows_of

DAEMON = Path(__file__).parent.parent.parent / "daemon"

# A module imports only what stands above it; rooms on one line do not import each other.
ORDER = (
    ("causes", "model", "states"),
    ("errors", "kit"),
    ("safety", "protocol"),
    ("config",),
    ("facts", "history"),
    ("catalog",),
    ("search",),
    ("surfaces",),
    ("wire",),
    ("ports",),
    ("host",),
    ("audit", "tracing"),
    ("processes", "bridge", "documents"),
    ("sandbox", "scripting", "secrets"),
    ("supervision", "state", "setup"),
    ("counting", "authorization", "sources"),
    ("upstreams", "clients"),
    ("summaries", "operators"),
    ("actors", "console"),
    ("tree", "checks"),
    ("main",),
    ("cli",),
    ("__main__",),
)
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}

# Values and decisions: no clock, no dice, no I/O, no loop, no SDK. What they need of these they are given.
PURE = {room for rooms in ORDER[: RANK["wire"]] for room in rooms}
CLOCK_AND_DICE = {"random", "secrets", "time"}
SYSTEM = {
    *("fcntl", "multiprocessing", "os", "pathlib", "shutil"),
    *("signal", "subprocess", "tempfile", "threading"),
}
NETWORK = {
    *("http", "httpx", "httpx2", "select", "selectors"),
    *("socket", "ssl", "trio_websocket", "urllib.request"),
}
IMPURE = CLOCK_AND_DICE | SYSTEM | NETWORK | {"anyio", "loguru", "mcp", "mcp_types", "sqlite3", "trio"}
# Modules of other rooms that decide as well, and do nothing else.
PURE_MODULES = {"daemon.supervision.backoff", "daemon.counting.tally", "daemon.counting.measures"}
# What a room, or a module, may use all the same: the config room reads the file it parses, and files that
# secrets are referred to by; words lie beside their module; mailboxes and watches wait; modules are loaded by
# one thread at a time.
ALLOWED = {
    "config": {"os", "pathlib"},
    "daemon.search.language": {"pathlib"},
    "daemon.kit.waiting": {"trio"},
    "daemon.kit.later": {"threading"},
}

SDK = {"mcp", "mcp_types", "pydantic", "pydantic_core"}
# A login uses the SDK's OAuth client, in a process of its own: these modules, which the daemon never imports.
LOGIN_PROCESS = {f"daemon.authorization.{each}" for each in ("login", "login_process", "machine_login")}

# The bridge starts once per client: what it imports is what every client waits for.
BRIDGE = "daemon.cli.connect"
DOORS = ("daemon", "daemon.cli")

# The modules that may import by name: a daemon without HTTP servers never pays for an HTTP client, nor one that
# finds tools by their words for numpy: tests/process/kit/test_later.py.
LOADS_BY_NAME = {
    "daemon.kit.later",
    "daemon.upstreams.transports.server_connection",
    "daemon.search.vectors",
    "daemon.counting.readings",
}


@attrs.frozen
class Tree:
    """Modules by name."""

    modules: Mapping[str, Module]
    _found: dict[str, list[Import]] = attrs.field(factory=dict, init=False, eq=False)
    """Of modules that a rule has asked for."""

    def imports(self) -> Iterator[tuple[str, Import]]:
        for name in self.modules:
            for found in self.of(name):
                yield name, found

    def of(self, name: str) -> list[Import]:
        if name not in self._found:
            self._found[name] = self.modules[name].imports(self.modules)
        return self._found[name]


def room_of(module: str) -> str:
    """The part of the house a module belongs to; empty for the package `daemon` itself."""
    return module.removeprefix("daemon").lstrip(".").partition(".")[0]


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "daemon"


def at(name: str, found: Import) -> str:
    return f"{name}:{found.line} imports {found.module}"


def order(tree: Tree) -> Iterator[str]:
    for name in tree.modules:
        if room_of(name) and room_of(name) not in RANK:
            yield f"{name} has no place in the order: give it one in ORDER"
    for name, found in tree.imports():
        here, there = room_of(name), room_of(found.module)
        if not is_ours(found.module) or here == there or not {here, there} <= RANK.keys():
            continue
        if RANK[there] >= RANK[here]:
            yield f"{at(name, found)}, which does not stand above it"


def actors_never_meet(tree: Tree) -> Iterator[str]:
    for name, found in tree.imports():
        here, there = name.split(".")[1:3], found.module.split(".")[1:3]
        if is_ours(found.module) and here[:1] == there[:1] == ["actors"] and here != there:
            yield f"{at(name, found)}: actors meet through messages, ports and the catalog"


def purity(tree: Tree) -> Iterator[str]:
    for name, found in tree.imports():
        room = room_of(name)
        allowed = ALLOWED.get(room, set()) | ALLOWED.get(name, set())
        if (room in PURE or name in PURE_MODULES) and found.under(IMPURE - allowed):
            yield f"{at(name, found)}, which is I/O, clock, dice or loop: have it handed in"


def one_loop(tree: Tree) -> Iterator[str]:
    for name, found in tree.imports():
        if found.under({"asyncio"}):
            yield f"{at(name, found)}: the loop here is trio"


def no_sdk(tree: Tree) -> Iterator[str]:
    for name, found in tree.imports():
        if found.under(SDK) and name not in LOGIN_PROCESS:
            yield f"{at(name, found)}: the SDK decodes what only passes through here; tests speak it"
        if found.module in LOGIN_PROCESS and name not in LOGIN_PROCESS:
            yield f"{at(name, found)}, and the SDK with it: a login is a process of its own"


def light_bridge(tree: Tree) -> Iterator[str]:
    waiting, seen = [BRIDGE, *DOORS], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in tree.modules:
            continue
        seen.add(name)
        waiting.append(name.rpartition(".")[0])
        for found in tree.of(name):
            if found.typing:
                continue
            if is_ours(found.module):
                # A door may name every command inline: only the one that was asked for is loaded.
                if not (found.inline and name in DOORS):
                    waiting.append(found.module)
            elif found.module.partition(".")[0] not in sys.stdlib_module_names:
                yield f"{at(name, found)}, for which every client of the bridge would wait"


def no_circle(tree: Tree) -> Iterator[str]:
    """Not even one through imports inside functions, or through what `later` is given."""
    graph: dict[str, set[str]] = {name: set() for name in tree.modules}
    for name, found in tree.imports():
        if found.module in graph and found.module != name:
            graph[name].add(found.module)
    for circle in circles(graph):
        yield "a circle: " + " <- ".join(circle)


def imports_stand_at_the_top(tree: Tree) -> Iterator[str]:
    for name, module in tree.modules.items():
        # What starts once per client or command loads only what it needs, and a daemon binds its sockets first.
        if room_of(name) in {"cli", "main", "bridge"}:
            continue
        for found in tree.of(name):
            if found.inline and not found.later:
                yield f"{at(name, found)} inside a function"
        if "import_module" not in module.source and "__import__" not in module.source:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {
                "import_module",
                "__import__",
            } - ({"import_module"} if name in LOADS_BY_NAME else set()):
                yield f"{name}:{node.lineno} imports by name, where no rule can see it"


RULES: dict[str, Callable[[Tree], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        *(order, actors_never_meet, purity, one_loop),
        *(no_sdk, light_bridge, no_circle, imports_stand_at_the_top),
    )
}


def made_up(files: Mapping[str, str]) -> Tree:
    modules: dict[str, Module] = {}
    for path, source in files.items():
        parts = Path(path).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = Module(name, source, is_package=is_package)
    return Tree(modules)


@functools.cache
def house() -> Tree:
    return Tree(read(DAEMON.parent, "daemon"))


@pytest.mark.parametrize("rule", RULES)
def test_the_house_keeps_its_order(rule: str) -> None:
    tree = house()
    assert "daemon.errors" in tree.modules
    faults = list(RULES[rule](tree))
    assert not faults, "\n".join(faults)


def test_the_libraries_that_mcpd_is_built_on_are_at_work() -> None:
    imported = {found.module.partition(".")[0] for _, found in house().imports() if not found.typing}
    assert {"attrs", "cattrs", "loguru", "mcp", "tenacity", "trio", "trio_websocket"} <= imported


@cases("rule", "files")
def test_a_rule_refuses(rule: str, files: dict[str, str]) -> None:
    assert len(list(RULES[rule](made_up(files)))) == 1


@cases("rule", "files")
def test_a_rule_accepts(rule: str, files: dict[str, str]) -> None:
    assert not list(RULES[rule](made_up(files)))


def test_every_rule_has_been_seen_to_refuse_and_to_accept() -> None:
    refused, accepted = (
        {rule for rule, _ in rows_of(Path(__file__), f"a_rule_{verb}")} for verb in ("refuses", "accepts")
    )
    assert refused == {*RULES}
    assert accepted >= RULES.keys() - {"one_loop"}
