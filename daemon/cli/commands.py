"""What a server's command line really starts: behind `env`, `exec` and their like, and within `sh -c`."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Words: TypeAlias = tuple[str, ...]
"""A command, without its directory, and its arguments."""

MAX_DEPTH = 4
"""Wrappers within wrappers that are looked into: nobody writes more, and a script could hold any number."""

SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh"})
WRAPPERS = frozenset({"command", "exec", "nohup", "sudo"})
"""Commands that start the one that follows them."""

_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)
_COMMAND_OPTION = re.compile(r"-[a-z]*c", re.ASCII)
_OPERATOR = re.compile(r"[;&|()<>]+")
_ENV_VALUED = frozenset({"-u", "--unset", "-C", "--chdir"})
_ENV_SPLIT = re.compile(r"-S|--split-string")


def started(words: Sequence[str], depth: int = 0) -> Iterator[Words]:
    """Each command that a command line starts; itself, if it is no wrapper."""
    if not words or depth > MAX_DEPTH:
        return
    name, rest = PurePath(words[0]).name, words[1:]
    inner: list[Sequence[str]]
    if name in WRAPPERS:
        inner = [rest]
    elif name == "env":
        inner = [_behind_env(rest)]
    elif name in SHELLS and (script := _script(rest)) is not None:
        inner = _commands(script)
    else:
        yield (name, *rest)
        return
    for each in inner:
        yield from started(_behind_assignments(each), depth + 1)


def _behind_assignments(words: Sequence[str]) -> Sequence[str]:
    first = next((at for at, word in enumerate(words) if not _ASSIGNED.fullmatch(word)), len(words))
    return words[first:]


def _behind_env(words: Sequence[str]) -> Sequence[str]:
    for at, word in enumerate(words):
        if _ENV_SPLIT.fullmatch(word):
            return (*_split(" ".join(words[at + 1 : at + 2])), *words[at + 2 :])
        if not word.startswith("-") and (at == 0 or words[at - 1] not in _ENV_VALUED):
            return words[at:]
    return ()


def _script(words: Sequence[str]) -> str | None:
    """What a shell is given to run with `-c`."""
    for at, word in enumerate(words[:-1]):
        if _COMMAND_OPTION.fullmatch(word):
            return words[at + 1]
        if not word.startswith(("-", "+")):
            return None
    return None


def _commands(script: str) -> list[Sequence[str]]:
    found: list[list[str]] = [[]]
    for token in _split(script.replace("\n", ";")):
        if _OPERATOR.fullmatch(token):
            found.append([])
        else:
            found[-1].append(token)
    return [each for each in found if each]


def _split(text: str) -> list[str]:
    """The words and operators of a shell's line; none if it is none."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        return []
