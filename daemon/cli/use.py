"""Commands that use servers: call a tool, get a prompt, read a resource, and list prompts and resources."""

from __future__ import annotations

import base64
import binascii
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn, TextIO

from daemon.cli.asking.companion import CallCompanion, converse, converse_as_client, members
from daemon.cli.asking.elicitation import Declined, Interrupted, lacking_in, missing
from daemon.cli.command import UsageError, asking, drawn
from daemon.cli.control import EX_FAULT, KINDS, CommandFailed, Message, RemoteFault, ask_with
from daemon.cli.tools import read_tool, tool_name
from daemon.config.labels import split_off, split_off_uri
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

SCRIPTS = "script"
"""The name of the server whose tools are the scripts (`config.config_files`)."""

# --- arguments --------------------------------------------------------------------------------------------


def parse_arguments(words: list[str]) -> Message:
    """Parse a tool's arguments: one JSON object, `-` for stdin, or KEY=VALUE pairs. Raises UsageError."""
    return _object(sys.stdin.read(), "stdin") if words == ["-"] else _pairs(words, _value)


def parse_texts(words: list[str]) -> dict[str, str]:
    """Parse a prompt's arguments, which are texts: KEY=VALUE pairs or one JSON object. Raises UsageError."""
    arguments = _pairs(words, str)
    if wrong := [key for key, each in arguments.items() if not isinstance(each, str)]:
        raise UsageError(f"{wrong[0]!r} is not a string: prompts take only strings")
    return arguments


def _pairs(words: list[str], parse: Callable[[str], object]) -> Message:
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return _object(words[0], "the argument")
    arguments: Message = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"{word!r} is neither KEY=VALUE nor the only argument and a JSON object")
        if key in arguments:
            raise UsageError(f"{key!r} is given twice")
        arguments[key] = parse(value)
    return arguments


def _object(text: str, source: str) -> Message:
    try:
        value = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise UsageError(f"{source} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f'{source} is not a JSON object, as in {{"key": "value"}}')
    return value


def _value(text: str) -> Any:
    with suppress(ValueError):
        return json.loads(text, parse_constant=_no_number)
    return text


def _no_number(word: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's parser accepts but JSON does not have."""
    raise ValueError(f"{word} is not JSON")


# --- contents ---------------------------------------------------------------------------------------------


def _show(options: argparse.Namespace, result: Message, shown: Iterable[str], stream: TextIO) -> None:
    if options.json:
        print(document(result))
        return
    for text in shown:
        # Only a terminal can be attacked.
        print(visible(text, lines=True) if stream.isatty() else text, file=stream)


def texts(result: Message) -> list[str]:
    """The texts of a CallToolResult: its content, or else its structured content."""
    content = result.get("content") or []
    if not content and result.get("structuredContent") is not None:
        return [document(result["structuredContent"])]
    return [text_of(item) for item in content]


def text_of(item: Message) -> str:
    """The text of one item of content; other items are described in one line."""
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
    count = len(base64.rstrip("=")) * 3 // 4 if isinstance(base64, str) else 0
    return f"{count} bytes"


# --- call -------------------------------------------------------------------------------------------------


def call(options: argparse.Namespace) -> int:
    """Call a tool and print its result."""
    name, arguments = tool_name(options.tool), parse_arguments(options.arguments)
    server, tool = read_tool(options, name)
    given = _completed(options, server, tool, arguments)
    if server == SCRIPTS:
        if options.profile is None:
            raise UsageError("a script runs by the rules of a profile: name one with --profile")
        result = converse_as_client(options, server, tool, given)
    else:
        result = converse(options, server, "call", {"server": server, "tool": tool, "arguments": given})
    failed = bool(result.get("isError"))
    _show(options, result, texts(result), sys.stderr if failed else sys.stdout)
    code = members(members(result.get("structuredContent")).get("error")).get("code")
    return KINDS.get(str(code), EX_FAULT) if failed else 0


def _completed(options: argparse.Namespace, server: str, tool: str, given: Message) -> Message:
    """The arguments, after asking for missing ones. Raises UsageError if some stay missing; nothing is sent."""
    wish = {"server": server, "tool": tool, "profile": options.profile}
    try:
        schema = members(ask_with(options, "tool", wish)["definition"]["inputSchema"])
    except RemoteFault as fault:
        if fault.kind == "InvalidArguments":
            raise
        return given  # An instance, or a server without a list: the call reports the fault.
    person = None if options.arguments == ["-"] else CallCompanion.of(options, server).person()
    try:
        given = given if person is None else {**given, **missing(schema, given, person)}
    except (Declined, Interrupted):
        raise KeyboardInterrupt from None
    if lacking := lacking_in(schema, given):
        how = f"write {lacking[0]}=VALUE; `mcpd tools {shlex.quote(f'{server}/{tool}')}` shows its arguments"
        raise UsageError(visible(f"{server}/{tool} needs {', '.join(lacking)}: {how}"))
    return given


# --- prompts and resources --------------------------------------------------------------------------------


prompts = asking("prompts", "server", drawn("daemon.cli.definition_views:render_prompts"))
resources = asking("resources", "server", drawn("daemon.cli.definition_views:render_resources"))


def prompt(options: argparse.Namespace) -> int:
    """Print the messages of a prompt."""
    server, name = split_off(options.prompt)
    if not server:
        raise UsageError(f"write SERVER/NAME, not {options.prompt!r}: `mcpd prompts` lists them")
    params = {"server": server, "name": name, "arguments": parse_texts(options.arguments)}
    result = converse(options, server, "prompt", params)
    _show(options, result, messages(result), sys.stdout)
    return 0


def messages(result: Message) -> Iterator[str]:
    """The texts of a GetPromptResult: the role and content of each message."""
    for message in result.get("messages") or []:
        content = message.get("content")
        for item in content if isinstance(content, list) else [content]:
            yield f"{message.get('role')}: {text_of(item if isinstance(item, dict) else {})}"


# --- read -------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """One content of a resource."""

    uri: str
    kind: str
    held: str | bytes

    @property
    def content(self) -> bytes:
        """The content as bytes."""
        return self.held.encode(errors="replace") if isinstance(self.held, str) else self.held

    @property
    def described(self) -> str:
        """URI, type and size of the content, escaped, in one line."""
        kind = self.kind or ("text" if isinstance(self.held, str) else "binary")
        return visible(f"{self.uri} ({kind}, {len(self.content)} bytes)")


def read(options: argparse.Namespace) -> int:
    """Print a resource, or write it to a file."""
    server, uri = split_off_uri(options.resource)
    # The person who answers must know which server asks.
    place = (
        {"server": server, "uri": uri}
        if server
        else ask_with(options, "locate", {"uri": uri, "profile": options.profile})
    )
    result = converse(options, place["server"], "read", place)
    if options.json:
        print(document(result))
    elif options.output is None:
        show_parts(parts_of(result), sys.stdout)
    else:
        write_parts(parts_of(result), options.output)
    return 0


def parts_of(result: Message) -> list[Part]:
    """The contents of a ReadResourceResult. Raises CommandFailed if one is neither text nor base64."""
    contents = result.get("contents")
    if not isinstance(contents, list) or not all(isinstance(each, dict) for each in contents):
        raise CommandFailed("its server has answered without contents; --json shows the answer")
    parts = []
    for each in contents:
        uri, kind, held = str(each.get("uri", "")), each.get("mimeType"), each.get("text")
        if not isinstance(held, str):
            try:
                held = base64.b64decode(str(each.get("blob", "?")), validate=True)
            except (binascii.Error, ValueError):
                raise CommandFailed(f"{uri} is neither text nor base64; --json shows the answer") from None
        parts.append(Part(uri, kind if isinstance(kind, str) else "", held))
    return parts


def show_parts(parts: list[Part], stream: TextIO) -> None:
    """Print contents, several under headings. Raises CommandFailed for binary ones on a terminal."""
    terminal = stream.isatty()
    for part in parts:
        if isinstance(part.held, bytes) and terminal:
            raise CommandFailed(
                f"{part.described} is binary: --output FILE writes it, `| program` passes it on"
            )
    for part in parts:
        if len(parts) > 1:
            print(f"==> {part.described} <==", file=stream)
        if isinstance(part.held, bytes):
            _write_bytes(part.held, stream)
        else:
            stream.write(visible(part.held, lines=True) if terminal else part.held)
        if (terminal or len(parts) > 1) and part.held[-1:] not in ("\n", b"\n"):
            stream.write("\n")


def _write_bytes(held: bytes, stream: TextIO) -> None:
    binary: BinaryIO | None = getattr(stream, "buffer", None)
    if binary is None:
        raise CommandFailed("this output takes no bytes: --output FILE writes them")
    stream.flush()
    binary.write(held)
    binary.flush()


def write_parts(parts: list[Part], path: Path) -> None:
    """Write contents to `path`, `path.2` and so on, and report each on stderr. Raises CommandFailed."""
    for number, part in enumerate(parts, 1):
        place = path if number == 1 else path.with_name(f"{path.name}.{number}")
        try:
            place.write_bytes(part.content)
        except OSError as error:
            raise CommandFailed(f"cannot write {place}: {error.strerror}") from None
        print(f"{place}: {part.described}", file=sys.stderr)
