"""Events that are decisions, and operators' commands, as records."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemon.audit.audit_files import AuditQuery, read
from daemon.audit.audit_log import Audit
from daemon.audit.event_records import LONGEST, note_command, note_event
from daemon.audit.record import digest
from daemon.config.tuning import AuditKeys
from daemon.history.event import Event, EventKind
from tests.unit.cases import rows_of


async def recorded(root: Path, *noted: Any) -> list[dict[str, Any]]:
    """The records that functions of an audit have left."""
    audit = Audit(root / "audit", AuditKeys(), "host/1/a", now=lambda: 1.8e9)
    for note in noted:
        note(audit)
    await audit._round()
    found = [msgspec.json.decode(each.line) for each in read(audit.root, AuditQuery())]
    chained = {"seq", "prev", "daemon"}
    return [{name: value for name, value in each.items() if name not in chained} for each in found]


def event(kind: EventKind, **details: Any) -> Any:
    told = Event(kind=kind, at=1.8e9, server="git", session="#3", details=details)
    return lambda audit: note_event(audit, told)


async def test_a_user_s_choice(tmp_path: Path) -> None:
    chosen = event(EventKind.ALLOWED, tool="git_add", by="uid 1000 (session #3)", lasts="once", traceId="ab")
    assert await recorded(tmp_path, chosen) == rows_of(Path(__file__), "a_user_s_choice")


async def test_a_refused_peer_names_its_reason(tmp_path: Path) -> None:
    (found,) = await recorded(tmp_path, event(EventKind.REFUSED, door="clients", reason="user", count=4))
    assert (found["decision"], found["rule"]) == ("refused", "user")
    assert found["details"] == {"event": "refused", "door": "clients", "count": 4}


async def test_events_that_are_decisions(tmp_path: Path) -> None:
    found = await recorded(tmp_path, *(event(kind, of=kind) for kind in EventKind))
    decisions = {each["details"]["of"]: each["decision"] for each in found}
    assert [decisions] == rows_of(Path(__file__), "events_that_are_decisions")


class Params(msgspec.Struct):
    """A command's parameters."""

    server: str = "git"
    action: str = "new"
    names: tuple[str, ...] = ()
    answer: str = "s3cret"


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        (Params(), {"action": "new"}),
        (Params(names=("a", "b")), {"action": "new", "names": ["a", "b"]}),
        (Params(action="x" * LONGEST), {"more": 1}),
    ],
)
async def test_a_command_shows_its_subject_and_no_secret(tmp_path: Path, params: Params, shown: Any) -> None:
    (found,) = await recorded(
        tmp_path, lambda audit: note_command(audit, "uid 0 (terminal)", "tokens", params, "ok")
    )
    # Of all parameters, also of those that are not shown.
    assert found.pop("argumentsSha256") == digest(msgspec.json.encode(params))
    assert found == {
        "at": "2027-01-15T08:00:00Z",
        "decision": "command",
        "principal": "uid 0 (terminal)",
        "server": "git",
        "tool": "tokens",
        "outcome": "ok",
        "details": shown,
    }


async def test_who_agreed_and_what_was_switched_are_found_by_their_members(tmp_path: Path) -> None:
    agreed = event(EventKind.ALLOWED, tool="add", by="uid 7 (session #3)", principal="uid 7", client="agent 1")
    switched = event(EventKind.SWITCHED, what="tool git_log", on=False)
    whole = event(EventKind.SWITCHED, what="the server", on=False)
    first, second, third = await recorded(tmp_path, agreed, switched, whole)
    assert (first["principal"], first["client"]) == ("uid 7", "agent 1")
    assert (second["decision"], second["server"], second["tool"]) == ("switched", "git", "git_log")
    assert (third["server"], third.get("tool")) == ("git", None), "no tool is named `server`"
