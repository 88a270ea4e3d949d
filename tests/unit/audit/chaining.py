"""Chains of audit records for tests, written without the daemon's writer."""

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from daemon.audit.record import AuditRecord, ChainHead, Decision, chained, digest

CHAIN = "c0" * 32
START = datetime(2026, 11, 27, 12, tzinfo=UTC)


def record(number: int, decision: Decision = Decision.SENT, **members: Any) -> AuditRecord:
    """The record of a minute; `number` counts from 1."""
    at = members.pop("at", START + timedelta(minutes=number))
    usual = {"server": "git", "tool": "git_log", "outcome": "ok"} if decision == "sent" else {}
    return AuditRecord(at=at, daemon="life", decision=decision, **{**usual, **members})


def began(chain: str = CHAIN, **members: Any) -> AuditRecord:
    """The first record of a daemon's life."""
    return record(1, Decision.BEGAN, details={"chain": chain, "version": "1.0"}, **members)


def lines_of(records: Iterable[AuditRecord], chain: str = CHAIN, seq: int = 1) -> list[bytes]:
    """The chained lines of records, without their ends."""
    return chained(map(msgspec.json.encode, records), seq - 1, chain)[0].splitlines()


def some(count: int, chain: str = CHAIN) -> list[bytes]:
    """The lines of a chain of so many records."""
    return lines_of([began(chain), *(record(number) for number in range(2, count + 1))], chain)


def written(directory: Path, files: Mapping[str, Iterable[bytes]]) -> Path:
    """Write files of whole lines, and return their directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        opened = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.writelines(line + b"\n" for line in lines)
    return directory


def head_of(lines: list[bytes], seq: int = 0, chain: str = CHAIN) -> ChainHead:
    """The head at a record of a whole chain, by default at its last one."""
    seq = seq or len(lines)
    return ChainHead(chain=chain, seq=seq, digest=digest(lines[seq - 1]))
