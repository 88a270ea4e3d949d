"""What is wrong or pointless in a profile's rules of permission, as far as a configuration alone tells."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from daemon.config.jsonc import below
from daemon.config.names import CLIENT_PREFIX, matches, pattern_problem, read_reference
from daemon.errors import Fault
from daemon.kit.wording import quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from daemon.config.permission import PermissionRule

MAX_RULES = 256
"""Rules of one profile: each new list of tools is judged by all of them, in a microsecond each."""

_WILD = frozenset("*?[")


def permission_faults(rules: Sequence[PermissionRule], trail: str) -> Iterator[Fault]:
    """Everything wrong with the rules of one profile."""
    if len(rules) > MAX_RULES:
        yield Fault(path=trail, message=f"{len(rules)} rules are too many; there may be {MAX_RULES}")
    for number, rule in enumerate(rules):
        here = below(trail, number)
        if rule.match is None and rule.annotations is None:
            message = 'this rule does not say for which tools it is: write "match": "*" if it is for all'
            yield Fault(path=here, message=message)
        if rule.match is not None and (problem := pattern_problem(rule.match)):
            yield Fault(path=below(here, "match"), message=problem)
        if rule.annotations is not None and not rule.annotations.wanted:
            message = 'this fits every tool: write "destructive": true or the like, or remove the key'
            yield Fault(path=below(here, "annotations"), message=message)


def unknown_servers(rules: Sequence[PermissionRule], trail: str, servers: Collection[str]) -> Iterator[Fault]:
    """Rules that no tool can match, since no server is named as they say."""
    for number, rule in enumerate(rules):
        server = None if rule.match is None else server_in(rule.match, servers)
        if server is not None and not any(fnmatchcase(name, server) for name in servers):
            message = f"no tool can match this: unknown server {quoted(server)}{suggestion(server, servers)}"
            yield Fault(path=below(below(trail, number), "match"), message=message)


def server_in(pattern: str, servers: Collection[str]) -> str | None:
    """The server that a pattern names, itself perhaps a glob; None if it may be any."""
    if pattern.startswith("/"):
        return None
    head = read_reference(pattern, servers).server
    # A star passes over slashes: `*/read` fits what `*` fits.
    return None if head is None or head.startswith("*") else head


def unreachable(rules: Sequence[PermissionRule], trail: str) -> Iterator[Fault]:
    """Rules for tools that an earlier one is for already: the first that fits wins."""
    for number, rule in enumerate(rules):
        earlier = next((n for n, other in enumerate(rules[:number]) if covers(other, rule)), None)
        if earlier is None:
            continue
        same = rules[earlier].then is rule.then
        message = (
            f"this rule is never reached: the first that fits wins, and rule {earlier + 1} fits every tool that"
            f" this one is for and says {'the same' if same else quoted(str(rules[earlier].then))}."
            f" Remove this one{'' if same else ', or move it before that'}"
        )
        yield Fault(path=below(trail, number), message=message)


def covers(earlier: PermissionRule, later: PermissionRule) -> bool:
    """Whether one rule surely fits every tool that another one fits; False where that is not plain."""
    wanted = {} if earlier.annotations is None else earlier.annotations.wanted
    given = {} if later.annotations is None else later.annotations.wanted
    if given.get("read_only"):
        given = {"destructive": False, **given}
    if not wanted.items() <= given.items():
        return False
    if earlier.match is None or earlier.match in {"*", "*/*", later.match}:
        return True
    return later.match is not None and _pattern_covers(earlier.match, later.match)


def _pattern_covers(earlier: str, later: str) -> bool:
    if later.startswith(("/", CLIENT_PREFIX)) or "[" in later:
        return False
    server, slash, tool = later.partition("/")
    if not slash:
        # It is for tools of all servers, and, if it has a star, perhaps for all tools of some.
        return False
    if _WILD.isdisjoint(later):
        return matches(earlier, server, tool)
    # Only stars take in other wildcards: what stands for any text then stands within what they stand for.
    is_plain = _WILD.isdisjoint(earlier.replace("*", "")) and not earlier.startswith(("/", CLIENT_PREFIX))
    return is_plain and "/" in earlier and fnmatchcase(later, earlier)
