"""Decides which `sandbox` entry a server needs, from its observed use; the entry never opens a secret.

A directory stands for its files once two of them are read, or one is written, because programs replace files by
renaming. No line opens a directory that many programs share (`shared` in places.toml).
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from posixpath import dirname, relpath

import attrs

from daemon.config.sandbox_keys import SandboxMode, SandboxRules
from daemon.kit.wording import counted
from daemon.sandbox.policy import Access, Policy, above, is_within, table

SIBLINGS = 3
"""From this number of sibling directories on, the entry opens their parent instead of each one."""

MAX_NOTES = 20
"""Most notes of one kind: as many as a person reads."""

_DATED = re.compile(r"/[^/]*\d{4}-\d\d-\d\d.*")
"""Matches the end of a path from a directory with a date in its name: tomorrow's directory has another."""


_READ_OTHERWISE = re.compile(r"[*?\[\]{}$]")
"""Matches a path that an entry would take for a pattern or a reference, which could lead to a secret."""


class Use(enum.Flag):
    """The ways in which a path was used, and its kind."""

    READ = enum.auto()
    WRITE = enum.auto()
    SEE = enum.auto()
    """Only the status of the file was asked for."""
    CONNECT = enum.auto()
    """The path was used as a socket."""
    DIRECTORY = enum.auto()
    GONE = enum.auto()
    """The path no longer exists."""


@attrs.frozen(kw_only=True)
class Observations:
    """The files and hosts that a server used while it was watched."""

    paths: Mapping[str, Use] = attrs.field(factory=dict)
    """Resolved paths, in the order of first use."""
    named: Collection[str] = ()
    """Resolved paths that were there before, and that the server's arguments or environment name."""
    addresses: Mapping[str, int] = attrs.field(factory=dict)
    """Addresses that the server tried to reach directly, with the number of tries."""
    missed: int = 0
    """The number of system calls whose path could not be read."""
    hosts: Mapping[str, int] = attrs.field(factory=dict)
    """Hosts that the proxy connected to, with the number of requests."""
    refused: Mapping[str, str] = attrs.field(factory=dict)
    """Hosts that the proxy refused even during the lesson, and why."""


@attrs.frozen
class LearnedLine:
    """One value in a list of the entry, and why the server needs it."""

    key: str
    """`allowRead`, `allowWrite`, `allowedDomains`, or a list of denials."""
    value: str
    why: str


@attrs.frozen
class Learned:
    """The smallest sensible `sandbox` of a server."""

    mode: SandboxMode
    lines: tuple[LearnedLine, ...]
    notes: tuple[str, ...]
    """Uses that the entry does not allow, and how to allow them."""

    @property
    def entry(self) -> str | dict[str, object]:
        """The value of `sandbox`."""
        is_strict = self.mode is SandboxMode.STRICT
        entry: dict[str, dict[str, list[str]]] = {} if is_strict else {"network": {"allowedDomains": []}}
        for line in self.lines:
            part = "network" if line.key.endswith("Domains") else "filesystem"
            entry.setdefault(part, {}).setdefault(line.key, []).append(line.value)
        if is_strict and not entry:
            return str(self.mode)
        return {"mode": str(self.mode), **entry} if is_strict else {**entry}


def learned(
    observed: Observations, policy: Policy, registries: Iterable[str] = (), before: SandboxRules | None = None
) -> Learned:
    """The entry for the observed use, on top of the mode's bare `policy`.

    `registries`: hosts from which the server's runner installs; `before`: the rules in force, whose denials
    stay.
    """
    found = _LearnedPaths(observed, policy)
    hosts = dict.fromkeys(registries, "packages are installed from there")
    hosts |= {host: f"was asked for {counted(count, 'time')}" for host, count in observed.hosts.items()}
    lines = [*found.lines(), *(LearnedLine("allowedDomains", host, why) for host, why in hosts.items())]
    if before is not None:
        denied = {"denyRead": before.filesystem.deny_read, "denyWrite": before.filesystem.deny_write}
        denied["deniedDomains"] = before.network.denied_domains
        lines += [LearnedLine(key, each, "as before") for key, listed in denied.items() for each in listed]
    refused = observed.refused.items()
    notes = [f"it wanted {at}: {why}; name it in allowedDomains yourself to allow it" for at, why in refused]
    notes += [
        f"it tried {address} {counted(count, 'time')} directly: no network for programs that ignore HTTPS_PROXY"
        for address, count in observed.addresses.items()
    ]
    if observed.missed:
        notes += [f"{counted(observed.missed, 'system call')} could not be read: files may be missing"]
    return Learned(policy.mode, tuple(lines), (*found.notes(), *notes))


class _LearnedPaths:
    def __init__(self, observed: Observations, policy: Policy) -> None:
        self._policy = policy
        self._allowed = {
            **dict.fromkeys(table()["empty"], Access.HIDDEN),
            **dict.fromkeys(table()["temporary"], Access.WRITE),
            policy.home: Access.HIDDEN if policy.mode is SandboxMode.STRICT else Access.READ,
            **policy.places,
            **dict.fromkeys(policy.own, Access.WRITE),
        }
        temporary = table()["temporary"]
        # A sandbox has a /tmp of its own, without what lies there already.
        lacked = {each for each in observed.named if _nearest(each, self._allowed) in temporary}
        self._allowed |= dict.fromkeys(lacked.difference(temporary), Access.HIDDEN)
        self._shared = {policy.home + each[1:] if each.startswith("~") else each for each in table()["shared"]}
        self._secret, self._unfit, self._written, self._read = (dict[str, Use]() for _ in range(4))
        # Inside, the directories on the way to the server's own exist.
        present = {each for path in policy.own for each in above(path)}
        for path, use in observed.paths.items():
            self._sort(path, use & ~Use.WRITE if Use.DIRECTORY in use and path in present else use)
        self._writable = self._together(filter(None, (self._opened(*each) for each in self._written.items())))
        beyond = {at: use for at, use in self._read.items() if not self._writable.keys() & {at, *above(at)}}
        passed = {each for path in (*beyond, *self._writable, *policy.places) for each in above(path)} | present
        self._read = beyond.copy()
        for path, use in beyond.items():
            is_needed = path not in self._shared and (Use.READ in use or path not in passed)
            if Use.DIRECTORY in use and not is_needed:
                del self._read[path]
        beside = Counter(dirname(path) for path, use in self._read.items() if Use.DIRECTORY not in use)
        self._readable = self._together(
            dirname(each) if beside[dirname(each)] > 1 and dirname(each) not in self._shared else each
            for each in self._read
        )

    def _sort(self, path: str, use: Use) -> None:
        access = self._allowed.get(_nearest(path, self._allowed), Access.READ)
        if access is Access.HIDDEN and _nearest(path, self._allowed) in self._policy.places:
            if use & (Use.READ | Use.WRITE | Use.CONNECT):
                self._secret[path] = use
        elif Use.CONNECT in use and Use.WRITE not in use:  # another program's socket
            self._unfit[path] = use
        elif Use.WRITE in use and access is not Access.WRITE:
            is_program = any(is_within(path, each) for each in table()["programs"])
            (self._unfit if is_program or not self._opened(path, use) else self._written)[path] = use
        elif access is Access.HIDDEN and Use.GONE not in use and not is_within(path, "/run"):
            self._read[path] = use

    def _opened(self, path: str, use: Use) -> str:
        """The directory to make writable for a path, or the path itself; empty if neither may be."""
        directory = _DATED.sub("", dirname(path))
        if directory not in self._shared:
            return directory
        return "" if Use.GONE in use or path in self._shared else path

    def _together(self, paths: Iterable[str]) -> dict[str, None]:
        """The fewest directories and files that contain all paths; a parent replaces `SIBLINGS` or more."""
        found = dict.fromkeys(paths)
        while True:
            found = {each: None for each in found if not found.keys() & {*above(each)}}
            beside = Counter(map(dirname, found))
            holders = [each for each in beside if beside[each] >= SIBLINGS and each not in self._shared]
            if not holders:
                return found
            found |= dict.fromkeys(holders)

    def lines(self) -> Iterator[LearnedLine]:
        for key, verb, chosen, used in (
            ("allowRead", "read", self._readable, self._read),
            ("allowWrite", "wrote", self._writable, self._written),
        ):
            for each in filter(_is_plain, chosen):
                below = [path for path in used if is_within(path, each)]
                yield LearnedLine(key, self._shown(each), _why(verb, each, below, used))

    def notes(self) -> Iterator[str]:
        firsts = {_nearest(path, self._policy.places): path for path in reversed(self._secret)}
        for path in list(firsts.values())[:MAX_NOTES]:
            key, verb = ("allowWrite", "wrote") if Use.WRITE in self._secret[path] else ("allowRead", "read")
            yield f"it {verb} {self._shown(path)}, which is secret: add {key} yourself to allow that"
        odd = [each for each in (*self._readable, *self._writable) if not _is_plain(each)]
        for path in odd[:MAX_NOTES]:
            yield f"it used {self._shown(path)}: not opened, since no entry can hold this name"
        for path, use in list(self._unfit.items())[:MAX_NOTES]:
            if Use.CONNECT in use:
                yield f"it connected to the socket {self._shown(path)}: add allowRead yourself to allow that"
            else:
                yield f"it wrote {self._shown(path)}, where other programs' files are: not opened"

    def _shown(self, path: str) -> str:
        home = self._policy.home
        return f"~{path[len(home) :]}" if is_within(path, home) else path


def _is_plain(path: str) -> bool:
    return path.isprintable() and not _READ_OTHERWISE.search(path)


def _nearest(path: str, places: Collection[str]) -> str:
    return next((each for each in (path, *above(path)) if each in places), "")


def _why(verb: str, chosen: str, below: list[str], used: Mapping[str, Use]) -> str:
    # Files that stayed come first: a name for a moment tells nobody anything.
    files = [each for each in below if Use.DIRECTORY not in used[each]]
    files.sort(key=lambda each: Use.GONE in used[each])
    if chosen in used and files in ([], [chosen]):
        if not used[chosen] & (Use.READ | Use.WRITE):
            return "checked whether the path exists"
        return "listed it" if verb == "read" and not files else f"{verb} it"
    what = counted(len(files), "file") if files else counted(len(below), "directory", "directories")
    return f"{verb} {what} there, first {relpath((files or below)[0], chosen)}"
