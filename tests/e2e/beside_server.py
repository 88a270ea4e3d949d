"""A server on the `mcp` SDK 2.x, of both eras, with prompts, resources, a template and completions."""

from __future__ import annotations

from mcp.server import MCPServer
from mcp_types import Completion

server = MCPServer("beside", instructions="Notes.")

NOTES = {"1": "first note", "2": "second note, with \u00e4 and \U0001f389"}


@server.prompt(title="Greet somebody")
def greet(who: str, tone: str = "kind") -> str:
    """Greets."""
    return f"Greet {who} in a {tone} tone."


@server.prompt()
def plain() -> str:
    """Has no arguments."""
    return "Nothing to fill in."


@server.resource("note://index", mime_type="text/plain")
def index() -> str:
    """All notes."""
    return "\n".join(NOTES)


@server.resource("note://blob", mime_type="application/octet-stream")
def blob() -> bytes:
    """No text."""
    return bytes(range(256))


@server.resource("note://by-number/{number}")
def note(number: str) -> str:
    """One note."""
    return NOTES[number]


@server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
async def complete(ref: object, argument: object, context: object) -> Completion:
    """Completes with what it was asked."""
    value = getattr(argument, "value", "")
    known = getattr(context, "arguments", None) or {}
    return Completion(values=[f"{value}-{each}" for each in ("a", "b", *known.values())], has_more=False)


@server.tool()
def echo(text: str) -> str:
    """Says it again."""
    return text


if __name__ == "__main__":
    server.run()
