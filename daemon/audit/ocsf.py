"""Records of the audit for readers: in words, and as events of OCSF (`ocsf.toml`)."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from daemon.audit.audit_files import StoredRecord
from daemon.audit.record import AuditRecord
from daemon.safety.escape import json_line

_LOGGED = (3, 17)


def words(record: AuditRecord) -> tuple[str, str, str, str]:
    """The subject, actor, reason and outcome of a record, for people."""
    session, by = record.session and f"session {record.session}", record.by and f"by {record.by}"
    details = json_line(record.details) if record.details else ""
    return (
        "/".join(filter(None, (record.server, record.tool))) or record.method or "mcpd",
        ", ".join(filter(None, (record.principal, record.client, session))) or "mcpd",
        "; ".join(filter(None, (record.rule, by, details))),
        record.outcome,
    )


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("ocsf.toml").read_text(encoding="utf-8"))


def event(record: StoredRecord) -> dict[str, Any]:
    """The event of a record."""
    table, told, members = _table(), dict[str, Any](), msgspec.to_builtins(record)
    action, disposition = table["dispositions"].get(record.decision, _LOGGED)
    failed = action == 2 or record.outcome not in {"", "ok"}  # noqa: PLR2004 - denied
    values = {
        **table["fixed"],
        "status_id": 1 + failed,
        "action_id": action,
        "disposition_id": disposition,
        "resources": [{"name": words(record)[0], "type": "MCP tool"}] if record.tool else [],
        **{path: members.pop(name) for path, name in table["members"].items() if name in members},
        "time": int(record.at.timestamp() * 1000),
        "duration": round(record.duration_ms),
        "unmapped": members,
    }
    for path, value in values.items():
        *above, last = path.split(".")
        place = told
        for each in above:
            place = place.setdefault(each, {})
        place[last] = value
    return told
