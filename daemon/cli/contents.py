"""What a tool, a prompt or a resource holds, as texts: text as it is, anything else described in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    from typing import TextIO

Json = dict[str, Any]


def show(text: str, stream: TextIO) -> None:
    """Print a text of a server's: only a terminal can be attacked with it, all else gets it as it is."""
    print(visible(text, lines=True) if stream.isatty() else text, file=stream)


def texts(result: Json) -> list[str]:
    """A CallToolResult as texts: each item of its content, or the structured content if there is none."""
    content = result.get("content") or []
    if not content and result.get("structuredContent") is not None:
        return [document(result["structuredContent"])]
    return [text(item) for item in content]


def text(item: Json) -> str:
    """One item of content: text as it is, anything else described in a line."""
    kind = item.get("type")
    if kind == "text":
        return str(item.get("text", ""))
    if kind in {"image", "audio"}:
        return f"[{kind}: {item.get('mimeType')}, {_size(item.get('data'))}; --json prints them]"
    if kind == "resource_link":
        return f"[resource_link: {item.get('uri')} {item.get('name', '')}]"
    if kind == "resource":
        resource = item.get("resource") or {}
        if isinstance(resource.get("text"), str):
            return f"[resource: {resource.get('uri')}]\n{resource['text']}"
        return f"[resource: {resource.get('uri')}, {_size(resource.get('blob'))}; --json prints them]"
    return f"[{kind}; --json prints it]"


def _size(base64: object) -> str:
    """The number of bytes that base64 text encodes, in words."""
    count = len(base64.rstrip("=")) * 3 // 4 if isinstance(base64, str) else 0
    return f"{count} bytes"
