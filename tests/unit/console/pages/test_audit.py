"""The page of the audit: decisions, newest first, read from the files in bounded pieces."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemon.audit.audit_log import Audit
from daemon.audit.record import AuditRecord, Decision
from daemon.config.tuning import AuditKeys
from daemon.console.pages import activity_pages
from daemon.console.pages.activity_pages import AUDIT_PAGE, EVENTS_SHOWN
from daemon.errors import InvalidArguments
from daemon.operators.base import OperatorContext
from tests.fakes_upstream import Stage
from tests.unit.audit.chaining import began, lines_of, record, written
from tests.unit.cases import cases
from tests.unit.console.pages.drawing import HOSTILE, drawn, values_of, viewer_of
from tests.unit.operators.stage import operator_context

FILE = "2026-11-27.jsonl"


def context_of(root: Path, *records: AuditRecord) -> OperatorContext:
    """A daemon with these records."""
    written(root, {FILE: lines_of([began(), *records])})
    return msgspec.structs.replace(operator_context(Stage()), audit=Audit(root, AuditKeys(), "life"))


def seqs(values: Mapping[str, Any]) -> list[int]:
    """The numbers of the records that a page shows."""
    return [values[each]["entry"].record.seq for each in values if each.startswith("audit-%2F")]


RECORDS = (
    record(2, session="#4", client="claude 2", principal="uid 1000", duration_ms=12.5),
    record(3, Decision.AGREED, server="git", tool="git_reset", rule="ask", by="user of session #4"),
    record(4, Decision.REFUSED, server="git", tool="git_push", rule="permissions", outcome="Denied"),
    record(5, server="time", tool="now", session="key"),
)


async def test_a_record_says_when_who_did_what_by_which_rule_and_with_what_outcome(tmp_path: Path) -> None:
    page = await drawn(AUDIT_PAGE, viewer_of(context_of(tmp_path, *RECORDS)))
    for said in ("sent", "git/git_log", "uid 1000, claude 2, session #4", "12 ms", "ok"):
        assert said in page.text
    for said in ("agreed", "git/git_reset", "ask; by user of session #4", "refused", "permissions", "Denied"):
        assert said in page.text
    assert page.text.index("time/now") < page.text.index("git/git_log")
    assert "Records are missing" not in page.text
    for no_time in ("soon", "inf"):
        with pytest.raises(InvalidArguments, match="is not a time"):
            await values_of(AUDIT_PAGE, viewer_of(context_of(tmp_path), query=f"until={no_time}"))


@cases("query", "numbers")
async def test_records_can_be_chosen(tmp_path: Path, query: str, numbers: list[int]) -> None:
    values = await values_of(AUDIT_PAGE, viewer_of(context_of(tmp_path, *RECORDS), query=query))
    assert seqs(values) == numbers
    assert values["audit-pager"]["shown"] == len(numbers)


async def test_older_records_are_a_page_away_and_none_is_left_out(tmp_path: Path) -> None:
    context = context_of(tmp_path, *(record(number) for number in range(2, 3 * EVENTS_SHOWN)))
    seen, query = list[int](), ""
    for _ in range(3):
        values = await values_of(AUDIT_PAGE, viewer_of(context, query=query))
        seen += seqs(values)
        query = values["audit-pager"]["older"].partition("?")[2]
    assert (seen, query) == ([*range(3 * EVENTS_SHOWN - 1, 0, -1)], "")


async def test_a_page_looks_at_so_many_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity_pages, "AUDITED", 3)
    context = context_of(tmp_path, *RECORDS)
    values = await values_of(AUDIT_PAGE, viewer_of(context, query="decision=began"))
    assert (values["audit-pager"]["shown"], values["audit-pager"]["looked"]) == (0, 3)
    older = values["audit-pager"]["older"].partition("?")[2]
    nothing = await drawn(AUDIT_PAGE, viewer_of(context, query="server=x"))
    assert "None of the newest 3" in nothing.text
    values = await values_of(AUDIT_PAGE, viewer_of(context, query=older))
    assert seqs(values) == [1]


async def test_a_malformed_line_is_shown_as_one(tmp_path: Path) -> None:
    context = context_of(tmp_path, *RECORDS)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b"<script>\n")
    page = await drawn(AUDIT_PAGE, viewer_of(context))
    assert "is not a record of the audit" in page.text
    assert page.is_harmless()


async def test_an_audit_that_cannot_be_written_or_has_lost_records_is_said(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    context.audit.problem, context.audit.dropped = "No space left on device", 3
    page = await drawn(AUDIT_PAGE, viewer_of(context))
    assert "Records are missing: it cannot be written: No space left on device; 3 records lost" in page.text


async def test_names_do_not_become_markup(tmp_path: Path) -> None:
    names = ("client", "principal", "server", "tool", "rule", "by", "outcome")
    hostile = record(2, Decision.SENT, **dict.fromkeys(names, HOSTILE))
    context = context_of(tmp_path, hostile, record(3, Decision.COMMAND, details={HOSTILE: HOSTILE}))
    assert (await drawn(AUDIT_PAGE, viewer_of(context))).is_harmless()


async def test_a_command_reads_as_one_and_its_details_are_words_with_short_hashes(tmp_path: Path) -> None:
    told = record(2, Decision.COMMAND, server="git", tool="restart", details={"force": True, "why": "old"})
    held = record(3, details={"hash": "0123456789ab" + 52 * "c", "other": 70 * "d"})
    page = await drawn(AUDIT_PAGE, viewer_of(context_of(tmp_path, told, held)))
    for said in ("restart git", "force: true, why: old"):
        assert said in page.text
    assert "hash: 0123456789ab…," in page.text
    assert 70 * "d" in page.text
