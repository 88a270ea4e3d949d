"""mcpd's own entry in a client's file: what it runs, and how it is recognised."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.errors import McpdError
from daemon.setup.programs import OWN_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

_BRIDGE = "connect"


class NoProgram(McpdError):
    """It is not known where the `mcpd` is that clients are to start; the text says what to do."""


def own_command(called: str) -> str:
    """The absolute path of the `mcpd` that runs, links left as they are: an upgrade changes what they lead to.

    Args:
        called: how it was called: `sys.argv[0]`.

    Raises:
        NoProgram: it was not called as a program, and there is none beside the interpreter or on PATH.
    """
    named = Path(called) if "/" in called and Path(called).name == OWN_NAME else None
    beside = Path(sys.executable).with_name(OWN_NAME)
    on_path = shutil.which(OWN_NAME)
    for place in (named, on_path if called == OWN_NAME else None, beside, on_path):
        if place is not None and Path(place).is_file():
            return str(Path(place).absolute())
    raise NoProgram(
        "there is no program `mcpd` beside this interpreter or on PATH that clients could start: install mcpd"
        " (`pipx install mcpd-supervisor`) and run that"
    )


def is_own(entry: object) -> bool:
    """Whether a server, as any client writes it, is mcpd itself: `mcpd connect`, wherever the program lies."""
    if not isinstance(entry, dict):
        return False
    program, bridge, *_ = [*_words(entry.get("command", entry.get("cmd"))), *_words(entry.get("args")), "", ""]
    return program.rpartition("/")[2] == OWN_NAME and bridge == _BRIDGE


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
