"""Servers that are known to keep something for their client or to need limits, and what their entries lack.

`mcpd up`, `import` and `add` write what is known into the entries that they make. An entry that is there is
left alone: `mcpd check` and `mcpd doctor` tell what it does not say; a `share` that is written is what its
author wants.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs

from daemon.config.command_lines import image_of, packages_of, program_of, read_table, started
from daemon.config.model import WRITTEN, Share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daemon.config.model import Server


@attrs.frozen(kw_only=True)
class Isolation:
    """What a second instance needs so as not to meet the first."""

    option: str
    """The argument to add."""
    unless: frozenset[str] = attrs.field(converter=frozenset)
    """Arguments and variables that say where its files are, or whose browser it is."""
    why: str
    """What goes wrong without it, after the server's name."""


@attrs.frozen(kw_only=True)
class KnownServer:
    """A server of which is known what it keeps."""

    names: frozenset[str] = attrs.field(converter=frozenset)
    """Its packages, images and modules, in lower case, with - for _ and without versions."""
    programs: frozenset[str] = attrs.field(default=(), converter=frozenset)
    """What its programs are called where their package is not; a package of that name is another one."""
    why: str
    """What goes wrong if all clients share one, or call it at the same time, after the server's name."""
    source: str
    """Where that was seen."""
    share: Share = attrs.field(default=Share.ALL, converter=Share)
    """Who can share an instance of it."""
    workspace: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    """The arguments that give it the directory of its clients, if it takes one."""
    only_with: frozenset[str] = attrs.field(default=(), converter=frozenset)
    """The arguments of which one must be there for it to be bound to a directory; empty if it always is."""
    apart: Isolation | None = None
    """What keeps several instances on one machine apart."""
    in_flight: int | None = None
    """The most calls that it bears at the same time."""


@attrs.frozen(kw_only=True)
class Advice:
    """What an entry of a known server should say, and does not."""

    key: str
    """Where: `share`, `args` or `limits.inFlight`."""
    value: Share | int | tuple[str, ...]
    """What to write there; of `args`, what to add."""
    why: str
    """What goes wrong otherwise, after the server's name."""
    in_container: bool = False
    """Whether it runs in a container, which sees a directory only where one is mounted."""

    @property
    def written(self) -> str:
        """What was written into an entry that was made, why, and how to undo it; after the server's name."""
        match self.value:
            case Share() as share:
                said, undo = f'"share": "{share}"', 'write "all"'
            case int(most):
                said, undo = f'"limits": {{"inFlight": {most}}}', "remove it"
            case words:
                said, undo = f"{' '.join(words)} in args", "remove it"
        return f"{self.why}: {said} is written; to undo that, {undo} in its entry"


@cache
def known_servers() -> tuple[KnownServer, ...]:
    """The servers that need something of their entries, as they were seen."""
    rows = read_table("known_servers")["servers"]
    return tuple(
        KnownServer(**{**row, "apart": Isolation(**row["apart"]) if "apart" in row else None}) for row in rows
    )


def isolating() -> frozenset[str]:
    """Arguments that mcpd adds itself, so that a server with them is the one that a client has without."""
    return frozenset(row.apart.option for row in known_servers() if row.apart is not None)


_VERSION = re.compile(r"(?<=.)(?:@|==)[^/@]*$|\[[^\]]*\].*$")
_TAG = re.compile(r"(?::[^/@]*)?(?:@.*)?$")
_DEFAULT_REGISTRY = "docker.io/"
_SCRIPT_RUNNERS = frozenset({"bun", "deno", "node"})
_PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")


def advice(server: Server) -> tuple[Advice, ...]:
    """What an entry should say and does not; nothing of a server that is not known, or is switched off."""
    if not server.enabled or not server.command:
        return ()
    for words in started((server.command, *server.args)):
        if (row := _row(words)) is not None:
            return tuple(_advice(server, row, words))
    return ()


def completed(entry: Mapping[str, Any], server: Server) -> tuple[dict[str, Any], tuple[Advice, ...]]:
    """An entry that is being made, with what is known of its server, and what that is.

    A server that is bound to a directory keeps its arguments, which say what it may reach, and is given an
    instance for each directory that clients work in.

    Args:
        entry: the entry.
        server: the same, as mcpd reads it.
    """
    made, done = dict(entry), list[Advice]()
    while found := advice(server):
        each = found[0]
        match each.value:
            case int(most):
                made["limits"] = {**made.get("limits", {}), "inFlight": most}
                server = attrs.evolve(server, limits=attrs.evolve(server.limits, in_flight=most))
            case tuple(words) if WRITTEN not in words:
                made["args"] = [*made.get("args", []), *words]
                server = attrs.evolve(server, args=(*server.args, *words))
            case other:
                share = other if isinstance(other, Share) else Share.WORKSPACE
                each = attrs.evolve(each, key="share", value=share)
                made["share"] = str(share)
                server = attrs.evolve(server, share=share)
        done.append(each)
    return made, tuple(done)


def known(server: Server) -> KnownServer | None:
    """What is known of the server that an entry starts; None if nothing is."""
    rows = map(_row, started((server.command or "", *server.args)))
    return next((row for row in rows if row is not None), None)


def _advice(server: Server, row: KnownServer, words: Sequence[str]) -> Iterator[Advice]:
    in_container = image_of(words) is not None
    share = server.shared_by
    bound = not row.only_with or any(_names(word, row.only_with) for word in server.args)
    if server.share is None and share is Share.ALL and row.share is not Share.ALL and bound:
        share = row.share
        if row.workspace:
            yield Advice(key="args", value=row.workspace, why=row.why, in_container=in_container)
        else:
            yield Advice(key="share", value=row.share, why=row.why)
    told = {*server.args, *server.env}
    apart = None if in_container or share is Share.ALL else row.apart
    if apart is not None and not any(_names(word, apart.unless) for word in told):
        yield Advice(key="args", value=(apart.option,), why=apart.why)
    if row.in_flight is not None and server.limits.in_flight > row.in_flight:
        yield Advice(key="limits.inFlight", value=row.in_flight, why=row.why)


def _names(word: str, options: frozenset[str]) -> bool:
    return word.partition("=")[0] in options


def _row(words: Sequence[str]) -> KnownServer | None:
    for name, is_program in _names_of(words):
        plain = name.lower().replace("_", "-")
        for row in known_servers():
            in_package = any(f"node_modules/{package}/" in name for package in row.names)
            if plain in row.names or in_package or (is_program and plain in row.programs):
                return row
    return None


def _names_of(words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The names of what a command starts, without a version, each with whether it is a program's.

    Not of its arguments, which may name anything.
    """
    if (image := image_of(words)) is not None:
        yield _TAG.sub("", image.name.removeprefix(_DEFAULT_REGISTRY)), False
    elif packages := packages_of(words):
        yield from ((_VERSION.sub("", name), False) for name in packages)
        yield from ((name, True) for name in program_of(words))
    elif words[0] in _SCRIPT_RUNNERS:
        yield from [(word, False) for word in words[1:] if not word.startswith("-")][:1]
    elif _PYTHON.fullmatch(words[0]):
        yield from ((module.partition(".")[0], True) for flag, module in pairwise(words) if flag == "-m")
    else:
        yield words[0], True
