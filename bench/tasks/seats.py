"""A scripted model at a surface, whose calls and answers are counted in bytes."""

from __future__ import annotations

import json
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import attrs

from bench.costs import first_sight, listing, name_in, read_of
from bench.running import Client, Unmeasurable
from bench.tokens import tokens_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.tasks.work import Call, Task

LOOK_CHARACTERS = 1500
"""Characters shown of an answer that a script only inspects."""
SAID = 500
"""Characters of an error that are reported."""
PATIENCE = 300.0
"""Seconds for one answer: a script makes dozens of calls."""


@attrs.define
class Context:
    """Bytes that entered a model's context, with round trips and time."""

    listed: int = 0
    """Bytes of instructions and lists of tools."""
    written: int = 0
    """Bytes of names and arguments of calls."""
    read: int = 0
    """Bytes of answers."""
    trips: int = 0
    """Calls of the model, one a turn."""
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens of all three."""
        return tokens_in(self.listed + self.written + self.read)

    def __add__(self, other: Context) -> Context:
        pairs = zip(attrs.astuple(self), attrs.astuple(other), strict=True)
        return Context(*[mine + its for mine, its in pairs])


class Child(Client):
    """A client of a server that runs as a child process on its stdio."""

    def __init__(self, words: Sequence[str]) -> None:
        """Start it."""
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(PATIENCE)
        self._file = self._socket.makefile("rb")
        self._line, self._last = b"", 0
        self.notices = []
        self._process = subprocess.Popen(
            words, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL
        )
        theirs.close()

    def close(self) -> None:
        """Disconnect, and wait for the server's end."""
        super().close()
        self._process.terminate()
        self._process.wait(PATIENCE)


class Seat:
    """A model with a client."""

    def __init__(self, client: Client) -> None:
        """Begin with the first list."""
        self.client = client
        first = first_sight(client)
        self.tools = first.tools
        self.used = Context(listed=first.size)

    def ask(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool. Returns the text of its answer.

        Raises:
            Unmeasurable: it failed.
        """
        answer = self.client.result_of("tools/call", {"name": name, "arguments": arguments})
        text = "\n".join(item.get("text", "") for item in answer.result["content"])
        if answer.result.get("isError"):
            raise Unmeasurable(f"{name}: {text[:SAID]}")
        asked = json.dumps({"name": name, "arguments": arguments}, separators=(",", ":"), ensure_ascii=False)
        self.used.written += len(asked.encode())
        self.used.read += read_of(answer)
        self.used.trips += 1
        return text

    def list_again(self) -> None:
        """Count the growth of the list, which the model reads, too."""
        before, self.tools = len(self.tools), listing(self.client)
        self.used.listed += len(self.tools) - before


# --- one call at a time --------------------------------------------------------------------------------------


def by_calls(surface: str, seat: Seat, task: Task) -> Any:
    """Do a task by single calls, as a model with tools only: it reads every answer."""
    _discover(seat, surface, task)
    calls = task.direct()
    call = next(calls)
    while True:
        text = _call(seat, surface, call)
        try:
            call = calls.send(text)
        except StopIteration as done:
            return done.value


def _discover(seat: Seat, surface: str, task: Task) -> None:
    tools = [each.partition("/") for each in task.tools]
    if surface == "load":
        for server in dict.fromkeys(each[0] for each in tools):
            names = [tool for owner, _, tool in tools if owner == server]
            seat.ask("load_mcp_tool", {"names": names, "server_name": server})
        seat.list_again()
    if surface == "category":
        for server in dict.fromkeys(each[0] for each in tools):
            if '"inputSchema"' not in seat.ask("get-category-tools", {"category": server}):
                names = [tool for owner, _, tool in tools if owner == server]
                seat.ask("get-category-tools", {"category": server, "toolNames": names})


def _call(seat: Seat, surface: str, call: Call) -> str:
    server, _, tool = call[0].partition("/")
    if surface == "category":
        return seat.ask("call-category-tool", {"category": server, "name": tool, "args": call[1]})
    return seat.ask(name_in(seat.tools, server, tool), call[1])


# --- by scripts ----------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Dialect:
    """The words of one way to run scripts."""

    search: str
    describe: str
    names: str
    """The argument of `describe` that takes the tools' names."""
    run: str
    tool: Callable[[str], str]
    """Makes the tool's name from `server/tool`."""
    script: Callable[[str], str]
    """Makes a script from one of `Task.scripts`."""
    value: Callable[[str], Any]
    """Reads the value in an answer of `run`."""
    looks: bool = False
    """Whether the model first inspects an answer of each kind, as it does not know their shapes."""


def _for_code_mode(script: str) -> str:
    script = script.replace("JSON(", "json.loads(").replace("call(", "call_tool(")
    for server in ("github", "hubspot", "notion", "filesystem", "fetch"):
        script = script.replace(f'"{server}/', f'"{server}_')
    return script


CODE = Dialect(
    search="search_tools",
    describe="describe_tools",
    names="names",
    run="run_code",
    tool=str,
    script=lambda script: script.replace("JSON(", "("),
    value=json.loads,
)
CODE_MODE = Dialect(
    search="search",
    describe="get_schema",
    names="tools",
    run="execute",
    tool=lambda name: name.replace("/", "_", 1),
    script=_for_code_mode,
    value=json.loads,
    looks=True,
)


def by_scripts(dialect: Dialect, seat: Seat, task: Task) -> Any:
    """Do a task by scripts."""
    seat.ask(dialect.search, {"query": task.need})
    seat.ask(dialect.describe, {dialect.names: [dialect.tool(name) for name in task.tools]})
    if dialect.looks:
        for name, arguments in task.looks:
            code = f'str(await call("{name}", {json.dumps(arguments)}))[:{LOOK_CHARACTERS}]'
            seat.ask(dialect.run, {"code": dialect.script(code)})
    return task.joined(
        [dialect.value(seat.ask(dialect.run, {"code": dialect.script(code)})) for code in task.scripts]
    )
