"""`mcpd read`: what a resource holds, as it is."""

from __future__ import annotations

import base64
import binascii
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TextIO

from daemon.cli.asking.companion import add_conversation, converse
from daemon.cli.call import CALL_SECONDS
from daemon.cli.control import EX_FAULT, ask_with, guarded
from daemon.cli.options import add_control, add_json, parser
from daemon.config.labels import split_off_uri
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse

Json = dict[str, Any]


class Part(NamedTuple):
    """One content of a resource."""

    uri: str
    kind: str
    """Its media type; empty if its server does not say."""
    held: str | bytes
    """Its text, or its bytes if it is binary."""

    @property
    def described(self) -> str:
        """Name, type and size in one line, safe to show."""
        size = len(self.held.encode(errors="replace")) if isinstance(self.held, str) else len(self.held)
        kind = self.kind or ("text" if isinstance(self.held, str) else "binary")
        return visible(f"{self.uri} ({kind}, {size} bytes)")


class Unreadable(Exception):
    """A resource cannot be shown; the text says why, and what to do."""


def main(argv: list[str]) -> int:
    """Read a resource.

    Returns:
        0: it is printed or written; 1: there is no such resource, or it is binary and stdout a terminal; 2:
        usage; 3: the daemon is not reachable.
    """
    options = _parser().parse_args(argv)
    return guarded(lambda: _shown(_asked(options), options))


def _asked(options: argparse.Namespace) -> Json:
    server, uri = split_off_uri(options.resource)
    # Whoever answers a server's questions must know which server asks.
    place = {"server": server, "uri": uri} if server else ask_with(options, "locate", {"uri": uri})
    return converse(options, place["server"], "read", place)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "read",
        "Print what a resource holds, as it is; on a terminal, control characters are spelt out. Binary content"
        " is printed only into a file or a pipe. Where several servers may have a URI, SERVER/URI names one.",
        examples=(
            "mcpd read file:///srv/notes.md",
            "mcpd read everything/demo://resource/static/document/features.md",
            "mcpd read demo://resource/dynamic/blob/1 --output blob",
        ),
        exits={0: "it is printed or written", 1: "there is no such resource, or it cannot be shown"},
    )
    made.add_argument("resource", metavar="URI|SERVER/URI", help="as `mcpd resources` shows them")
    made.add_argument(
        "--output", metavar="FILE", type=Path, help="write it there; further contents to FILE.2, FILE.3, ..."
    )
    add_json(made)
    add_conversation(made)
    add_control(made, CALL_SECONDS)
    return made


def parts_of(result: Json) -> list[Part]:
    """The contents of a ReadResourceResult.

    Raises:
        Unreadable: it has none, or one that is neither text nor base64.
    """
    contents = result.get("contents")
    if not isinstance(contents, list) or not all(isinstance(each, dict) for each in contents):
        raise Unreadable("its server has answered without contents; --json shows the answer")
    return [_part(each) for each in contents]


def _part(content: Json) -> Part:
    uri, kind = str(content.get("uri", "")), content.get("mimeType")
    held: object = content.get("text")
    if not isinstance(held, str):
        try:
            held = base64.b64decode(str(content.get("blob", "?")), validate=True)
        except (binascii.Error, ValueError):
            raise Unreadable(f"{visible(uri)} is neither text nor base64; --json shows the answer") from None
    return Part(uri, kind if isinstance(kind, str) else "", held)


def _shown(result: Json, options: argparse.Namespace) -> int:
    if options.json:
        print(document(result))
        return 0
    try:
        parts = parts_of(result)
        if options.output is None:
            show(parts, sys.stdout)
        else:
            write(parts, options.output)
    except Unreadable as error:
        print(f"mcpd: {error}", file=sys.stderr)
        return EX_FAULT
    return 0


def show(parts: list[Part], stream: TextIO) -> None:
    """Print contents: one as it is, several each under a line with its name.

    Raises:
        Unreadable: one is binary, and the stream a terminal.
    """
    terminal = stream.isatty()
    for part in parts:
        if isinstance(part.held, bytes) and terminal:
            raise Unreadable(f"{part.described} is binary: --output FILE writes it, `| program` passes it on")
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
        raise Unreadable("this output takes no bytes: --output FILE writes them")
    stream.flush()
    binary.write(held)
    binary.flush()


def write(parts: list[Part], path: Path) -> None:
    """Write contents to a file, further ones beside it; each is told on stderr.

    Raises:
        Unreadable: a file cannot be written.
    """
    for number, part in enumerate(parts, 1):
        place = path if number == 1 else path.with_name(f"{path.name}.{number}")
        held = part.held.encode(errors="replace") if isinstance(part.held, str) else part.held
        try:
            place.write_bytes(held)
        except OSError as error:
            raise Unreadable(f"cannot write {place}: {error.strerror}") from None
        print(f"{place}: {part.described}", file=sys.stderr)
