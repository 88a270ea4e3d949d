"""Reads `mcpd.lock`, a team's approvals next to the configuration, and identifies servers (docs/trust.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from daemon.model import Kind

LOCK = "mcpd.lock"

VERSION = 1
"""The version of the file's format, and of the rules for its hashes (`catalog.forms`)."""

MAX_LOCK = 16 * 1024 * 1024
"""Bytes of the file: it has room for some 30,000 tools."""

MEMBERS: Mapping[Kind, str] = {
    Kind.PROMPT: "prompts",
    Kind.SKILL: "skills",
    Kind.TEMPLATE: "resourceTemplates",
    Kind.TOOL: "tools",
}
"""The kinds of definitions that may need approval, with their members in the file."""


class LockedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One approved definition, which has a line of its own in the file."""

    hash: str
    """The definition's hash (`catalog.forms.SteadyForm.digest`)."""
    parts: Mapping[str, str] = {}
    says: str = ""
    """The beginning of the description, for people who read the file."""


class LockedPackage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A package or image in a server's command, which has a line of its own in the file."""

    pinned: bool = True
    version: str = ""
    hashes: tuple[str, ...] = ()
    """Hashes of the version's files, sorted: npm's integrity, PyPI's sha256, an image's digest; or none."""


class LockedServer(msgspec.Struct, frozen=True, kw_only=True):
    """One server in the file."""

    identity: str
    """The entry's identity (`identity_of`): the approvals hold only for this entry."""
    packages: Mapping[str, LockedPackage] = {}
    tools: Mapping[str, LockedLine] = {}
    prompts: Mapping[str, LockedLine] = {}
    skills: Mapping[str, LockedLine] = {}
    resource_templates: Mapping[str, LockedLine] = msgspec.field(default={}, name="resourceTemplates")

    def lines(self, kind: Kind) -> Mapping[str, LockedLine]:
        """The definitions of one kind, by name."""
        lines = {Kind.PROMPT: self.prompts, Kind.SKILL: self.skills, Kind.TOOL: self.tools}
        return lines.get(kind, self.resource_templates)


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content, which does not count if there is a `problem`."""

    version: int = msgspec.field(default=VERSION, name="lockfileVersion")
    servers: Mapping[str, LockedServer] = {}
    problem: str = ""


def lock_in(content: bytes) -> Lock:
    """Parse the file's content."""
    if len(content) > MAX_LOCK:
        return Lock(problem=f"it has more than {MAX_LOCK // 1024**2} MiB")
    try:
        version = msgspec.json.decode(content.decode(), type=_Version).version
        if version != VERSION:
            return Lock(problem=f"it has version {version}, this mcpd knows {VERSION}")
        return msgspec.structs.replace(msgspec.json.decode(content, type=Lock), problem="")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Lock(problem=f"it is not a valid {LOCK}: {error}")


class _Version(msgspec.Struct):
    version: int = msgspec.field(name="lockfileVersion")


def identity_of(entry: Mapping[str, Any]) -> str:
    """Hash the settings that identify a server (hex SHA-256): as written, without secrets in the URL."""
    decisive = {key: entry.get(key) for key in ("command", "args", "url")}
    if isinstance(decisive["url"], str):
        decisive["url"] = _without_secrets(decisive["url"])
    # What is faulty has an identity, too: its entry is mended later.
    text = msgspec.json.encode(decisive, enc_hook=repr, order="sorted")
    return hashlib.sha256(text).hexdigest()


def _without_secrets(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    query = urlencode([(name, "") for name, _ in parse_qsl(parts.query, keep_blank_values=True)])
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment=""))
