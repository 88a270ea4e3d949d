"""Records of the audit: one decision each, as a line of JSON that contains the digest of the line before."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec


class Decision(StrEnum):
    """The kinds of decisions that records are about."""

    SENT = "sent"
    """A call went to a server; `outcome` says how it ended."""
    REPAIRED = "repaired"
    """As `sent`, with arguments or a name that mcpd corrected; `rule` says how."""
    REFUSED = "refused"
    """mcpd refused a call, a connection, a server's question or a host; nothing was sent."""
    ASKED = "asked"
    """A client's user was asked about a call."""
    AGREED = "agreed"
    """A person allowed calls."""
    DECLINED = "declined"
    """A person, or a client for that person, did not allow a call."""
    HELD = "held"
    """Definitions wait for approval."""
    APPROVED = "approved"
    """A person approved definitions."""
    COMMAND = "command"
    """An operator's command, or a change in the console."""
    LOGIN = "login"
    """A login at a server began, succeeded, failed or ended."""
    SWITCHED = "switched"
    """A server or a definition was switched on or off."""
    CONFIGURED = "configured"
    """mcpd read the configuration again."""
    BEGAN = "began"
    """A daemon's records begin. `chain`: the chain's id; `torn`: bytes of an incomplete line that were removed;
    `lacks`, `digest`: a record that the store knew and the files no longer had."""
    ENDED = "ended"
    """The daemon stops, or the audit was switched off."""
    LOST = "lost"
    """Records are missing: `count`, `because`."""
    EXPIRED = "expired"
    """A file was deleted: `file`; `through`, `head`: the number and digest of its last record."""


def acting(uid: int | None, token: str = "", way: str = "") -> str:
    """A user or a token with its way in, as all records name them: `uid 0 (terminal)`, `token ci (console)`."""
    who = f"token {token}" if token else "token without a name" if uid is None else f"uid {uid}"
    return f"{who} ({way})" if way else who


class AuditRecord(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """One decision; empty members are omitted from the file."""

    at: datetime
    daemon: str
    """The daemon's `life` (`history.journal.History`)."""
    decision: str
    session: str = ""
    """The session's key if somebody chose one, else its connection's number, `#12`."""
    client: str = ""
    principal: str = ""
    """See `acting`."""
    pid: int = 0
    """The process at the other end of the unix socket."""
    server: str = ""
    tool: str = ""
    """The server's own name of the tool; for `command`, the command."""
    method: str = ""
    """The MCP method; empty for `tools/call`."""
    schema_hash: str = ""
    """The hash of the definition by which the call was judged."""
    rule: str = ""
    by: str = ""
    outcome: str = ""
    """`ok`, `isError`, or an error code (docs/errors.md)."""
    duration_ms: float = 0.0
    bytes: int = 0
    """The size of the answer."""
    arguments_sha256: str = ""
    arguments: str = ""
    """The arguments without secrets, if the configuration records them."""
    trace_id: str = ""
    details: dict[str, Any] = {}


class ChainHead(msgspec.Struct, frozen=True, kw_only=True):
    """The last record of a chain."""

    chain: str
    seq: int
    digest: str


def moment(at: float) -> datetime:
    """The UTC time of a record, from seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC)


def digest(line: bytes) -> str:
    """The SHA-256 digest, in hexadecimal, of a line without its line end, or of arguments."""
    return hashlib.sha256(line).hexdigest()


CallMembers = tuple[bytes, bytes, str, float, float, int]
"""A call's record: encoded members, arguments, outcome, seconds, end (since the epoch), bytes of the answer."""


@lru_cache(maxsize=1)
def _second(at: int) -> bytes:
    return moment(at).isoformat()[:19].encode()


def body_of(members: bytes, arguments: bytes, outcome: str, took: float, at: float, size: int) -> bytes:
    """The JSON of a call's record, from its `CallMembers`."""
    ended = _second(int(at)), at % 1 * 1e6, members, outcome.encode(), took * 1000, size
    line = b'{"at":"%b.%06dZ",%b,"outcome":"%b","durationMs":%.3f,"bytes":%d,"argumentsSha256":"%b"}'
    return line % (*ended, digest(arguments).encode())


def chained(records: Iterable[bytes | CallMembers], seq: int, prev: str) -> tuple[bytes, int, str]:
    """The lines of records after number `seq` with digest `prev`; number and digest of the last line."""
    lines = []
    for each in records:
        seq += 1
        body = each if isinstance(each, bytes) else body_of(*each)
        lines.append(b'{"seq":%d,"prev":"%b",%b' % (seq, prev.encode(), body[1:]))
        prev = digest(lines[-1])
    return b"\n".join((*lines, b"")), seq, prev


if __name__ == "__main__":
    import ctypes

    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: servers must not read calls' arguments here
    with open(0, "rb") as asked, open(0, "wb", closefd=False) as made:  # a socket (`audit_log.LineMaker`)
        made.write(b" ")
        made.flush()
        while size := asked.readline():
            answer = marshal.dumps(chained(*marshal.loads(asked.read(int(size)))))  # noqa: S302 - from the daemon
            made.write(b"%d\n%b" % (len(answer), answer))
            made.flush()
