"""Writes mcpd's skill for agents with a shell (https://agentskills.io)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from daemon.documents import files
from daemon.kit.wording import BYTES_PER_TOKEN
from daemon.safety.escape import legible

MAX_BYTES = 600 * BYTES_PER_TOKEN
"""Bytes of the skill, which an agent reads whole before its first use."""

MAX_LINE = 100
"""Characters of a server's line: a few words."""

_PAGE = Path(__file__).with_name("skill.md").read_text(encoding="utf-8")


def page(servers: Mapping[str, str]) -> str:
    """The skill's text; `servers` maps names to a few words; if there is no room, the last are only counted."""
    lines, left = [_line(name, words) for name, words in servers.items()], 0
    while True:
        more = [f"- {left} more: `mcpd tools` lists them"] if left else []
        text = _PAGE.replace("{servers}", "\n".join([*lines, *more] or ["- none yet"]))
        if not lines or len(text.encode()) <= MAX_BYTES:
            return text
        lines.pop()
        left += 1


def _line(name: str, words: str) -> str:
    """A server's line, without hidden characters or line breaks."""
    shown = legible(" ".join(f"{name}: {words}".split())).replace("`", "'").rstrip(": ")
    return f"- {shown if len(shown) <= MAX_LINE else shown[: MAX_LINE - 1] + '…'}"


def change(path: Path, state: Path, text: str, *, dry_run: bool = False) -> bool:
    """Write a skill, or remove it if the text is empty; a `dry_run` writes nothing. Returns whether it differs.

    Raises DocumentError if the file has a text that mcpd did not write; that file stays.
    """
    # The record: its text, and the one before; the directories that were made for it, the innermost first.
    record, found = state / "skills" / str(path).replace("/", "%"), files.look(path)
    texts, made = list[str](), list[str]()
    with suppress(OSError, msgspec.MsgspecError):
        texts, made = msgspec.json.decode(record.read_bytes(), type=tuple[list[str], list[str]])
    if found.content not in [None, *(each.encode() for each in texts)] and (text or texts):
        raise files.DocumentError(f"{path} is not mcpd's text, so it stays: remove it, then try again")
    if text:
        made = [str(each) for each in path.parents if str(each) in made or not each.exists()]
        # Before the file: what is not in the record stays for good, and the text before still counts.
        written = msgspec.json.encode(([text, *texts[:1]], made))
        files.replace(files.look(record), written, private=True)
        if changes := found.content != text.encode():
            files.replace(found, text.encode())
        return changes
    if texts and not dry_run:
        path.unlink(missing_ok=True)
        record.unlink()
        with suppress(OSError):
            for each in made:
                Path(each).rmdir()
    return bool(texts)
