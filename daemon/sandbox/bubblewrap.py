"""The arguments of bubblewrap (bwrap(1)) for a policy, and the mounts of a home directory.

In mode home, the home directory is a new one with what is shown of the real one: a secret that is made while
the server runs is not in it. These are hundreds of mounts, and bubblewrap would read the table of mounts for
each; so the stub makes them, in a namespace of its own. Blocks: it reads directories.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from stat import S_ISDIR, S_ISREG

from daemon.config.sandbox_keys import SandboxMode
from daemon.sandbox.policy import Access, Policy, is_within, table

MAX_ENTRIES = 4000
"""Entries of the home directory and of those opened in it; others are not shown, as mounts cost memory."""

TEMPORARY_BYTES = 1024 * 1024 * 1024
"""Bytes of each file system in memory: a browser needs 100 MB, and without a bound half the memory is free."""

_OWN = ("--size", str(TEMPORARY_BYTES), "--tmpfs")
_EMPTY = ("--perms", "0555", "--tmpfs")
"""Closed by its mode: making a mount read-only takes another look at the table of mounts."""

_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - directories of the server's own

BASE = (
    *(f"--unshare-{each}" for each in ("user", "ipc", "pid", "uts", "cgroup")),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
)
"""Arguments of every sandbox, also of a tried one (`probing`)."""

Mount = tuple[str, str, str]
"""A step of the stub: what (`dir`, `file`, `link`, `read`, `write`, `hide`), the source, and the place."""


def arguments(policy: Policy, *, has_network: bool, filter_fd: int, status_fd: int) -> list[str]:
    """The arguments but the command; with `has_network`, the stub has made the network namespace."""
    words = [*BASE, *([] if has_network else ["--unshare-net"])]
    words += ["--seccomp", str(filter_fd), "--json-status-fd", str(status_fd)]
    is_view = policy.mode is SandboxMode.HOME
    emptied = [each for each in table()["empty"] if os.path.realpath(each) == each != policy.home]
    emptied = [each for each in emptied if _is_directory(each)]
    for each in emptied:
        words += _EMPTY if each not in _TEMPORARY else _OWN
        words.append(each)
    words += [*_OWN, "/dev/shm"]  # noqa: S108 - a directory of the server's own
    for each in table()["kept"]:
        words += ["--ro-bind-try", each, each]
    shown = [each for each, given in policy.places.items() if given is not Access.HIDDEN]
    outer = {each: access for each, access in policy.places.items() if each != policy.home}
    outer = {each: access for each, access in outer.items() if is_within(policy.home, each)}
    outer = {each: access for each, access in outer.items() if is_view or access is Access.HIDDEN}
    for path, access in in_order(outer):
        words += _words(policy, path, access, emptied, shown)
    words += [] if is_view else [*_OWN, policy.home, "--dir", f"{policy.home}/.cache"]
    for path, access in in_order({**policy.places, **dict.fromkeys(policy.own, Access.WRITE)}):
        if path in outer or (is_view and is_within(path, policy.home)):
            continue
        own = policy.own.get(path)
        words += ["--bind", own, path] if own else _words(policy, path, access, emptied, shown)
    for link, target in policy.links.items():
        if not (is_view and is_within(link, policy.home)):
            words += ["--symlink", target, link]
    # After all others: bubblewrap reads the table of mounts for each, and the view has hundreds.
    words += ["--bind", policy.staging, policy.home] if is_view else []
    return [*words, "--chdir", policy.cwd]


def _words(policy: Policy, path: str, access: Access, emptied: list[str], shown: list[str]) -> list[str]:
    if access is not Access.HIDDEN:
        return ["--bind" if access is Access.WRITE else "--ro-bind", path, path]
    # What is absent, or closed to the daemon's user anyway, is not masked: each mount costs time. Of a link,
    # the policy has the target, too.
    if not (os.access(path, os.R_OK) or os.access(path, os.X_OK)) or os.path.realpath(path) != path:
        return []
    above = [each for each in (*emptied, policy.home) if is_within(path, each)]
    above += [each for each in _above(path, "/") if policy.places.get(each) is Access.HIDDEN]
    nearest = max(above, key=len, default="")
    if above and not any(is_within(path, each) and is_within(each, nearest) for each in shown):
        return []
    if _is_directory(path):
        inner = ["--dir", policy.home] if is_within(policy.home, path) else []
        return [*_EMPTY, path, *inner]
    return ["--ro-bind", "/dev/null", path]


def in_order(places: Mapping[str, Access]) -> list[tuple[str, Access]]:
    """Places in the order of their mounts: those within others come later, and so count."""
    return sorted(places.items(), key=lambda each: (each[0].count("/"), each))


def home_view(policy: Policy) -> list[Mount]:
    """The steps that fill `staging` with the home directory as the server sees it."""
    places = {path: access for path, access in policy.places.items() if is_within(path, policy.home)}
    own = {inside: outside for inside, outside in policy.own.items() if is_within(inside, policy.home)}
    special = {*places, *own}
    opened = {policy.home} | {above for path in special for above in _above(path, policy.home)}
    steps = list(_shown(policy.home, special, opened)) if policy.home not in places else []
    shown = list[str]()
    for path, access in in_order({**places, **dict.fromkeys(own, Access.WRITE)}):
        kind = "dir" if path in own or _is_directory(path) else "file"
        if access is Access.HIDDEN:
            nearest = max((each for each in shown if is_within(path, each)), key=len, default=None)
            if nearest and nearest not in own and os.path.exists(path):  # noqa: PTH110
                steps.append(("hide", kind, path))
            continue
        shown.append(path)
        steps.append((kind, "", path))
        # A link among the user's tools is shown as the directory that it leads to.
        steps.append(
            ("write" if access is Access.WRITE else "read", own.get(path) or os.path.realpath(path), path)
        )
    return [(what, source, _staged(policy, path)) for what, source, path in steps]


def _staged(policy: Policy, path: str) -> str:
    return policy.staging + path[len(policy.home) :]


def _above(path: str, home: str) -> Iterator[str]:
    while (path := os.path.dirname(path)) != home and len(path) > 1:  # noqa: PTH120 - pathlib takes 7 ms
        yield path


def _shown(directory: str, special: set[str], opened: set[str]) -> Iterator[Mount]:
    """Steps for the entries of a directory: those opened are made, others bound, special ones left out."""
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda each: each.name)[:MAX_ENTRIES]
    except OSError:
        return
    for each in entries:
        if each.path in special:
            continue
        if each.is_symlink():
            yield "link", os.readlink(each.path), each.path  # noqa: PTH115
            continue
        try:
            mode = each.stat().st_mode
        except OSError:
            continue
        if S_ISDIR(mode) and each.path in opened:
            yield "dir", "", each.path
            yield from _shown(each.path, special, opened)
        elif S_ISDIR(mode) or S_ISREG(mode):
            yield "dir" if S_ISDIR(mode) else "file", "", each.path
            yield "read", each.path, each.path


def _is_directory(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - pathlib takes 7 ms
