"""Commands that fetch a package and run it, and whether the version they fetch is pinned.

Without an exact version they run whatever is newest at each start: a crash and a restart can then bring another
program than the one that was reviewed, or fail without a network. That is how tools change behind their user's
back (MCP03, "rug pull").
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from daemon.config.command_lines import behind_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Runner(NamedTuple):
    """A command line that fetches a package and runs it."""

    words: tuple[str, ...]
    """The words that the command line begins with."""
    named_by: tuple[str, ...]
    """Options whose value is the package; without one, it is the first word that is not an option."""
    valued: tuple[str, ...]
    """Other options that take the next word as their value."""
    example: str
    """How an exact version is written after the package's name."""
    more: tuple[str, ...] = ()
    """Options whose value is a further package."""
    runs_files: bool = False
    """Whether the first word is a program of this machine rather than a package."""


_NPM_VALUED = (
    "--prefix",
    "-C",
    "--dir",
    "--filter",
    "--loglevel",
    "--cache",
    "--registry",
    "--userconfig",
    "-c",
    "--call",
    "-w",
    "--workspace",
)
_UV_VALUED = (
    "--python", "-p", "--index", "--index-url", "-i", "--extra-index-url", "--default-index",
    "--with-requirements", "--with-editable", "--directory", "--env-file", "--cache-dir", "--constraints",
    "--overrides", "--project", "--config-file", "--exclude-newer", "--extra", "--group", "--only-group",
    "--package",
)  # fmt: skip

RUNNERS = (
    Runner(("npx",), ("-p", "--package"), _NPM_VALUED, "@1.2.3"),
    Runner(("npm", "exec"), ("-p", "--package"), _NPM_VALUED, "@1.2.3"),
    Runner(("npm", "x"), ("-p", "--package"), _NPM_VALUED, "@1.2.3"),
    Runner(("pnpx",), ("--package",), _NPM_VALUED, "@1.2.3"),
    Runner(("pnpm", "dlx"), ("--package",), _NPM_VALUED, "@1.2.3"),
    Runner(("yarn", "dlx"), ("-p", "--package"), _NPM_VALUED, "@1.2.3"),
    Runner(("bunx",), ("-p", "--package"), (), "@1.2.3"),
    Runner(("bun", "x"), ("-p", "--package"), (), "@1.2.3"),
    Runner(("deno", "run"), (), ("-c", "--config", "--import-map", "--lock", "--env-file"), "@1.2.3"),
    Runner(("uvx",), ("--from",), _UV_VALUED, "==1.2.3", ("--with", "-w")),
    Runner(("uv", "tool", "run"), ("--from",), _UV_VALUED, "==1.2.3", ("--with", "-w")),
    Runner(("uv", "run"), (), _UV_VALUED, "==1.2.3", ("--with", "-w"), runs_files=True),
    Runner(
        ("pipx", "run"), ("--spec",), ("--python", "--index-url", "-i", "--pip-args"), "==1.2.3", ("--with",)
    ),
)

_PACKAGE = re.compile(r"((?:npm:|jsr:)?@?[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?)(\[[\w,.-]*\])?(.*)", re.ASCII)
"""Name (with npm's scope), extras, and what is said about the version."""

_EXACT = re.compile(r"(?:@|==)\s*v?\d+(?:\.\d+)+[\w.+!-]*(?:/.*)?", re.ASCII)
_VERSIONED = re.compile(r"(?:[@=<>~!^].*)?", re.ASCII)
_REPOSITORY = re.compile(
    r"(?:.*@ )?(?P<from>git\+\w+://.+|git://.+|github:.+|gitlab:.+|bitbucket:.+)", re.ASCII
)
_COMMIT = re.compile(r"[@#][0-9a-f]{7,64}(?:[#&?].*)?$", re.ASCII)
_BRANCH = re.compile(r"[@#][^/@#]*$")
_SCRIPT = re.compile(r"https?://\S+", re.ASCII)
_RELEASE = re.compile(r"[@/]v?\d+\.\d+[\w.+-]*/|/[0-9a-f]{40}/", re.ASCII)


def moving(words: Sequence[str]) -> Iterator[str]:
    """What a command fetches that may be another program at the next start, and what to write instead."""
    for runner in RUNNERS:
        rest = _behind(words, runner)
        # Offline, a runner takes what it has: nothing moves.
        if rest is not None and "--offline" not in words:
            for package in _packages(rest, runner):
                yield from _moves(package, runner)


class Unpinned(NamedTuple):
    """A package that a command fetches in whichever version is the newest."""

    written: str
    """As the command names it."""
    name: str
    """Without extras and tags."""
    pinned: str
    """What to write instead, but for the version, which follows."""
    is_npm: bool
    """Whether it is npm's; else it is PyPI's."""


def unpinned(words: Sequence[str]) -> Iterator[Unpinned]:
    """The packages of an index that a command names without a version, or as the latest."""
    for runner in RUNNERS:
        rest = _behind(words, runner)
        if rest is None or runner.words[0] == "deno" or "--offline" in words:
            continue
        is_npm = runner.example.startswith("@")
        for package in _packages(rest, runner):
            match = _PACKAGE.fullmatch(package)
            # To npm, `owner/name` is a repository.
            if match is None or match[3] not in {"", "@latest"} or ("/" in match[1] and match[1][0] != "@"):
                continue
            mark = "@" if is_npm else "=="
            yield Unpinned(package, match[1], f"{match[1]}{match[2] or ''}{mark}", is_npm)


def fetches(words: Sequence[str]) -> bool:
    """Whether a command may need the network to start."""
    known = any(_behind(words, runner) is not None for runner in RUNNERS if not runner.runs_files)
    return known and not {"--offline", "--no-install"} & set(words)


def packages_of(words: Sequence[str]) -> list[str]:
    """The packages that a runner's command line starts; empty if the command is not a runner."""
    for runner in RUNNERS:
        rest = _behind(words, runner)
        if rest is not None:
            return _packages(
                rest, runner._replace(more=(), valued=runner.valued + runner.more, runs_files=False)
            )
    return []


def program_of(words: Sequence[str]) -> list[str]:
    """The program that a runner's command line names beside its package, or that is not of a package at all."""
    for runner in RUNNERS:
        rest = _behind(words, runner)
        if rest is not None:
            first = list(behind_options(rest, (*runner.valued, *runner.more, *runner.named_by))[:1])
            return first if runner.runs_files or first != packages_of(words) else []
    return []


def _behind(words: Sequence[str], runner: Runner) -> Sequence[str] | None:
    """What follows a runner's words, skipping options between them; None if the command is another."""
    if tuple(words[:1]) != runner.words[:1]:
        return None
    rest = words[1:]
    for word in runner.words[1:]:
        rest = behind_options(rest, runner.valued)
        if not rest or rest[0] != word:
            return None
        rest = rest[1:]
    return rest


def _packages(words: Sequence[str], runner: Runner) -> list[str]:
    """The packages that a runner is told to fetch."""
    named: list[str] = []
    more: list[str] = []
    first, skip = [], False
    for word, following in pairwise((*words, "")):
        option, equals, value = word.partition("=")
        if skip:
            skip = False
        elif option in runner.named_by or option in runner.more:
            (more if option in runner.more else named).append(value if equals else following)
            skip = not equals
        elif word.startswith("-"):
            skip = not equals and word in runner.valued
        else:
            first = [] if runner.runs_files else [word]
            break
    return [*(named or first), *(each for given in more for each in given.split(","))]


def _moves(package: str, runner: Runner) -> Iterator[str]:
    repository, match = _REPOSITORY.fullmatch(package), _PACKAGE.fullmatch(package)
    if repository is not None:
        if not _COMMIT.search(repository["from"]):
            mark = "@" if runner.example.startswith("==") else "#"
            yield (
                f"'{package}' names no commit: every start may run other code. Write the one you have looked"
                f" at, as in '{_BRANCH.sub('', package)}{mark}COMMIT'"
            )
    elif _SCRIPT.fullmatch(package):
        if runner.words[0] == "deno" and not _RELEASE.search(package):
            yield (
                f"'{package}' names no release: every start may run other code. Write an address with the"
                " release that you have looked at, or keep the file here"
            )
    elif match is not None and _VERSIONED.fullmatch(match[3]) and not _EXACT.fullmatch(match[3]):
        # deno runs a file of this machine unless a prefix says where the package is from.
        if runner.words[0] == "deno" and not package.startswith(("npm:", "jsr:")):
            return
        yield (
            f"'{package}' has no exact version: every start may run another release, and needs the network to"
            f" find out. Write the one you have looked at, as in '{match[1]}{match[2] or ''}{runner.example}'"
        )
