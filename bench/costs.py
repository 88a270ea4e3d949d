"""Counts the bytes that a model reads before its first call, and on its way to one call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from bench.running import Unmeasurable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.running import Answer, Client

Call = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""


@attrs.frozen(kw_only=True)
class First:
    """The part of the context that is there from the start."""

    instructions: bytes
    """The handshake's instructions, as text."""
    tools: bytes
    """The answers to `tools/list`, all pages."""

    @property
    def size(self) -> int:
        """Bytes of both."""
        return len(self.instructions) + len(self.tools)


@attrs.frozen(kw_only=True)
class Step:
    """One request of a model and what it costs."""

    name: str
    """The tool that was called."""
    request: int
    """Bytes of the name and the arguments, which the model writes."""
    wire: int
    """Bytes of the answer on the wire."""
    read: int
    """Bytes of the answer that the model reads: text or structuredContent, whichever is longer."""
    listed: int
    """Bytes added to `tools/list`, which a client shows the model when it lists again."""

    @property
    def size(self) -> int:
        """Bytes that the step adds to the context."""
        return self.request + self.read + self.listed


@attrs.frozen(kw_only=True)
class Way:
    """The steps from the first list to a tool's answer."""

    steps: list[Step]
    """In order."""
    faults: list[str]
    """Answers that do not lead to the tool."""

    @property
    def size(self) -> int:
        """Bytes that all steps add to the context."""
        return sum(step.size for step in self.steps)


@attrs.frozen(kw_only=True)
class Aim:
    """The call that every surface must reach."""

    server: str
    """The tool's server, which is also its category."""
    tool: str
    """The tool's name in lists."""
    need: str
    """The query of a model that searches."""
    arguments: Mapping[str, Any]
    """The arguments of the call."""

    def way(self, surface: str) -> list[Call]:
        """The calls to discover, describe and call the tool, as the surface's instructions say."""
        arguments = dict(self.arguments)
        direct = (self.tool, arguments)
        ways: dict[str, list[Call]] = {
            "category": [
                ("get-category-tools", {"category": self.server}),
                ("call-category-tool", {"category": self.server, "name": self.tool, "args": arguments}),
            ],
            "browse": [
                ("list_categories", {}),
                ("get_tools", {"category": self.server}),
                ("call_tool", {"tool_name": self.tool, "arguments": arguments}),
            ],
            "search": [("search_tools", {"query": self.need}), direct],
            "load": [
                ("load_mcp_server", {"name": self.need}),
                ("load_mcp_tool", {"names": [self.tool]}),
                direct,
            ],
            "full": [direct],
        }
        return ways[surface]


def first_sight(client: Client) -> First:
    """The handshake and the first list."""
    return First(instructions=client.introduce().encode(), tools=listing(client))


def listing(client: Client) -> bytes:
    """All pages of `tools/list`, without spaces between members, which only some servers write."""
    pages = [client.result_of("tools/list", {})]
    while cursor := pages[-1].result.get("nextCursor"):
        pages.append(client.result_of("tools/list", {"cursor": cursor}))
    return b"\n".join(msgspec.json.format(page.line, indent=-1) for page in pages)


def names(listed: bytes) -> list[str]:
    """The names in a result of `listing`."""
    return [tool["name"] for page in listed.split(b"\n") for tool in json.loads(page)["result"]["tools"]]


def name_in(listed: bytes, server: str, tool: str) -> str:
    """The name of a server's tool in the list of the `full` surface.

    Raises:
        Unmeasurable: the list lacks it.
    """
    known = set(names(listed))
    for name in (f"{server}__{tool}", tool):
        if name in known:
            return name
    raise Unmeasurable(f"no tool {server}/{tool} is listed")


def walk(client: Client, aim: Aim, surface: str, listed: int) -> Way:
    """Make the calls of a surface and count the bytes.

    Args:
        client: connected to the surface, after its first list.
        aim: the tool to reach.
        surface: its name.
        listed: bytes of the first list.

    Raises:
        Unmeasurable: the tool was not reached.
    """
    steps: list[Step] = []
    found: list[str] = []
    calls = aim.way(surface)
    for left, (name, arguments) in zip(reversed(range(len(calls))), calls, strict=True):
        answer = client.result_of("tools/call", {"name": name, "arguments": arguments})
        if answer.result.get("isError"):
            raise Unmeasurable(f"{name}: {_text(answer)[:500]}")
        now = len(listing(client))
        steps.append(_step(name, arguments, answer, now - listed))
        listed = now
        if left:
            # Two steps before the call, the right place is enough: a long list names each one's first tools.
            signs = (aim.tool,) if left == 1 else (aim.tool, aim.server)
            if not any(sign in _text(answer) for sign in signs):
                found.append(f"{name}: does not lead to {aim.tool}")
    return Way(steps=steps, faults=found)


def read_of(answer: Answer) -> int:
    """Bytes of an answer that a model reads: the longer of text and structure, as clients show one of them."""
    structured = answer.result.get("structuredContent")
    return max(len(_text(answer).encode()), 0 if structured is None else len(_compact(structured)))


def _step(name: str, arguments: Mapping[str, Any], answer: Answer, listed: int) -> Step:
    return Step(
        name=name,
        request=len(_compact({"name": name, "arguments": arguments})),
        wire=len(answer.line),
        read=read_of(answer),
        listed=listed,
    )


def _text(answer: Answer) -> str:
    return "\n".join(item.get("text", "") for item in answer.result.get("content", ()))


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
