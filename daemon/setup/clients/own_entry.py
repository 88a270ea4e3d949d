"""mcpd's own entry in a client's file: what it runs, and how it is recognised."""

from __future__ import annotations

import shutil
import sys
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from daemon.errors import McpdError
from daemon.setup.clients.programs import OWN_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator


class NoProgram(McpdError):
    """There is no `mcpd` that others could start; the text says what to do."""


def own_command(called: str) -> str:
    """The absolute path of the `mcpd` that runs, links left as they are: an upgrade changes what they lead to.

    Args:
        called: how it was called: `sys.argv[0]`.

    Raises:
        NoProgram: it was not called as a program, and there is none beside the interpreter or on PATH.
    """
    named, beside = Path(called), Path(sys.executable).with_name(OWN_NAME)
    if named.name == OWN_NAME and named.is_file():
        return str(named.absolute())
    found = str(beside) if beside.is_file() else shutil.which(OWN_NAME)
    if found is None:
        raise NoProgram("there is no program `mcpd` beside this interpreter or on PATH: install mcpd first")
    return str(Path(found).absolute())


def is_own(entry: object) -> bool:
    """Whether a server, as any client writes it, is mcpd itself: `mcpd connect`, wherever the program lies.

    Also behind a runner: `uvx … mcpd connect`.
    """
    if not isinstance(entry, dict):
        return False
    words = [*_words(entry.get("command", entry.get("cmd"))), *_words(entry.get("args"))]
    return (OWN_NAME, "connect") in pairwise([PurePath(word).name for word in words[:1]] + words[1:])


def _words(value: object) -> Iterator[str]:
    """The texts of a command line, which some clients write in one list, and some in an object."""
    match value:
        case str():
            yield value
        case list():
            yield from (word for word in value if isinstance(word, str))
        case {"path": str(path), **more}:
            yield path
            yield from _words(more.get("args"))
