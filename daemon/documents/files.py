"""Reading and replacing a file that others write, too: nothing is lost, whoever writes at that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.errors import McpdError

if TYPE_CHECKING:
    from pathlib import Path


class DocumentError(McpdError):
    """A file cannot be read or changed; the text names it, says why and what to do."""


@attrs.frozen(kw_only=True)
class FoundFile:
    """A file as it was found, so that it is replaced only if it is still the same."""

    path: Path
    """Where it was looked for."""
    target: Path
    """Where its content is, behind links."""
    content: bytes | None = attrs.field(repr=False)
    """What it holds; None if there is no file."""
    identity: tuple[int, ...]
    """Device, inode, size and time of change, to notice that somebody else has written."""


def look(path: Path) -> FoundFile:
    """Read a file as it is now; one that is not there is found empty-handed.

    Raises:
        DocumentError: it cannot be read, is no regular file, is larger than is sensible, or is another user's.
    """
    raise NotImplementedError


def replace(found: FoundFile, content: bytes) -> None:
    """Replace a file in one step, with mode, owner and the links that lead to it kept.

    Raises:
        DocumentError: it cannot be written, or has changed since it was found.
    """
    raise NotImplementedError
