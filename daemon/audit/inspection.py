"""Inspects the audit: verifies its chains, and shows records to people and to a SIEM. Blocks."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tomllib
from collections.abc import Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any

import attrs
import msgspec

from daemon.audit.audit_files import StoredRecord, chains, entries
from daemon.audit.record import AuditRecord, ChainHead, Decision, digest
from daemon.safety.escape import json_line

JOURNAL_SECONDS = 10.0
"""Seconds for `journalctl`, which finds a month of audit heads within one second."""

NAMED = 20
"""Most faults kept of a chain: an edit near its beginning may cause thousands."""

_CHAIN = re.compile(r"\b[0-9a-f]{64}\b")
_HEAD = re.compile(r"audit head (\d{1,18}) ([0-9a-f]{64}) of ([0-9a-f]{64})|(\d{1,18}):([0-9a-f]{64})")

_LOGGED, _DENIED = (3, 17), 2


def words(record: AuditRecord) -> tuple[str, str, str, str]:
    """The subject, actor, reason and outcome of a record, for people; hidden characters are still in them."""
    is_command = record.decision == Decision.COMMAND
    parts = (record.tool, record.server) if is_command else (record.server, record.tool)
    subject = (" " if is_command else "/").join(filter(None, parts)) or record.method or "mcpd"
    who = record.principal, record.client, record.session and f"session {record.session}"
    shown = {name: each if isinstance(each, str) else json_line(each) for name, each in record.details.items()}
    details = ", ".join(f"{name}: {each}" for name, each in shown.items())
    why = record.rule, record.by and f"by {record.by}", details
    return subject, ", ".join(filter(None, who)) or "mcpd", "; ".join(filter(None, why)), record.outcome


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("ocsf.toml").read_text(encoding="utf-8"))


def event(record: StoredRecord) -> dict[str, Any]:
    """A record as an OCSF event (`ocsf.toml`), for a SIEM."""
    table, told, members = _table(), dict[str, Any](), msgspec.to_builtins(record)
    action, disposition = table["dispositions"].get(record.decision, _LOGGED)
    failed = action == _DENIED or record.outcome not in {"", "ok"}
    values = {path: members.pop(name) for path, name in table["members"].items() if name in members}
    values |= {"action_id": action, "disposition_id": disposition, "status_id": 1 + failed, "unmapped": members}
    values |= {"time": int(record.at.timestamp() * 1000), "duration": round(record.duration_ms)}
    values["resources"] = [{"name": words(record)[0], "type": "MCP tool"}] if record.tool else []
    for path, value in {**table["fixed"], **values}.items():
        *above, last = path.split(".")
        reduce(lambda place, name: place.setdefault(name, {}), above, told)[last] = value
    return told


@attrs.define
class CheckedChain:
    """The result of checking one chain."""

    directory: Path
    id: str = ""
    first: int = 0
    last: int = 0
    digest: str = ""
    faults: list[str] = attrs.field(factory=list)
    """The first `NAMED` faults, each with its place."""
    torn: str = ""
    """The place of an incomplete line at the end, which a daemon is still writing or left when killed."""
    vouched: int = 0
    """The number of the newest record that a copied head confirms."""


def verify(directory: Path, heads: Sequence[ChainHead]) -> tuple[list[CheckedChain], list[ChainHead]]:
    """Check chains against copied heads; return the chains, and heads of others. 6 s for a million records."""
    checked, others = [_check(each, {head.seq: "" for head in heads}) for each in chains(directory)], []
    newest = {head.chain: head.seq for head in sorted(heads, key=lambda head: head.seq)}
    for head in heads:
        about = [(chain, digests) for chain, digests in checked if head.chain in {"", chain.id}]
        agreeing = [
            chain
            for chain, digests in about
            if digests[head.seq] == head.digest
            # An old head may have expired with its record, but not the newest one.
            or head.seq < min(chain.first, newest.get(chain.id) or newest.get("", 0))
        ]
        if about and not agreeing:
            fault = f"record {head.seq} differs from its copy: it or an earlier one changed, or was cut off"
            about[0][0].faults.append(f"{about[0][0].directory}: {fault}")
        for chain in agreeing:
            chain.vouched = max(chain.vouched, head.seq if head.seq >= chain.first else 0)
        others += [] if about else [head]
    return [chain for chain, _ in checked], others


def _check(directory: Path, digests: dict[int, str]) -> tuple[CheckedChain, dict[int, str]]:
    chain, before, has_expired = CheckedChain(directory), "", False
    # A daemon that has run for longer than files are kept began in one that has expired.
    with contextlib.suppress(OSError):
        chain.id = "".join(_CHAIN.findall((directory / "lock").read_text(errors="replace")))
    for entry in entries(directory):
        if chain.torn:
            chain.faults.append(f"{chain.torn}: an incomplete line, and more lines follow")
        chain.torn = "" if entry.line.endswith(b"\n") else entry.place
        if chain.torn:
            continue
        if fault := _misfit(chain, record := entry.record, entry.ends):
            chain.faults = [*chain.faults, f"{entry.place}: {fault}"][:NAMED]
        if record is None:
            continue
        if not chain.first:
            chain.first, before = record.seq, record.prev
        chain.last, chain.digest = record.seq, digest(entry.line[:-1])
        if chain.last in digests:
            digests[chain.last] = chain.digest
        details = record.details
        chain.id = str(details.get("chain")) if record.decision == Decision.BEGAN else chain.id
        has_expired |= (details.get("through"), details.get("head")) == (chain.first - 1, before)
    if chain.first != 1 and not has_expired:
        chain.faults.append(
            f"{directory}: begins with record {chain.first}, and no record says that older ones expired"
        )
    return chain, digests


def _misfit(chain: CheckedChain, record: StoredRecord | None, ends: float) -> str:
    """Why a record does not follow the previous one, or fits no file that `ends` then; empty if it does."""
    if record is None:
        return "not a record of the audit"
    if record.at.timestamp() >= ends:
        return "later than the day of its file: the file was renamed"
    if chain.last and record.seq != chain.last + 1:
        return f"record {record.seq} follows record {chain.last}: records were removed, added or moved"
    if chain.last and record.prev != chain.digest:
        return f"does not contain the digest of record {chain.last}: one of the two was changed"
    if record.decision == Decision.BEGAN and "lacks" in record.details:
        return f"its daemon found record {record.details['lacks']} changed or removed when it started"
    return ""


def heads_in(text: str) -> list[ChainHead]:
    """The heads in a text of journal messages, or of `SEQ:DIGEST` words."""
    return [ChainHead(chain=chain, seq=int(a or b), digest=c or d) for a, c, chain, b, d in _HEAD.findall(text)]


def journal(uid: int) -> tuple[list[ChainHead], str]:
    """The heads that a user's daemons wrote to the journal, and the reason if the journal cannot be read."""
    words = ["journalctl", "-q", "-o", "cat", "SYSLOG_IDENTIFIER=mcpd-audit", f"_UID={uid}"]
    try:
        told = subprocess.run(words, capture_output=True, timeout=JOURNAL_SECONDS, check=True, text=True).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        return [], str(error)
    return heads_in(told), ""
