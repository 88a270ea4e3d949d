"""What is said of a server that is not well: by its cause, or by its last words if that leaves open why."""

import re
import signal
import string
from pathlib import Path
from typing import Any

import pytest

from daemon.causes import HEALTHY, Cause, Reason, Remedy
from daemon.safety.redact import Redactor
from daemon.supervision.lifecycle import LINE, LINES, SHOWN, by_cause, by_words, needs_words, table
from tests.unit.cases import cases, rows_of

FAILED = (Cause.EXITED, {"status": 1})


def told(cause: str, data: dict[str, Any], *stderr: str) -> Remedy:
    found = by_cause("git", by_words("git", Reason("", Cause(cause), data), stderr)).remedy
    assert found is not None, f"nothing is known about {cause}, {data}, {stderr!r}"
    return found


def read_well(found: Remedy) -> None:
    """Whole sentences, without anything that was to be filled in."""
    for text in (found.happened, found.helps):
        assert text[-1] in ".!?"
        assert text[0] in string.ascii_letters + string.digits + "/`'."
        assert "  " not in text
        assert not re.search(r"(?<!\$)\{\w*\}", text)
        # Advice that looks like a password would be shown as one that is hidden.
        assert Redactor(())(text) == text


# --- by cause -----------------------------------------------------------------------------------------------


@cases("cause", "data", "happened", "helps")
def test_a_cause_is_explained(cause: str, data: dict[str, Any], happened: str, helps: str) -> None:
    found = told(cause, data)
    assert happened in found.happened
    assert helps in found.helps
    read_well(found)


@cases("cause", "data", "stderr", "waits")
def test_a_server_that_waits_for_what_its_entry_cannot_bring_is_told_from_a_wrong_entry(
    cause: str, data: dict[str, Any], stderr: str, *, waits: bool
) -> None:
    assert told(cause, data, stderr).waits is waits


def test_every_cause_has_its_advice_and_every_advice_its_case() -> None:
    explained = rows_of(Path(__file__), "a_cause_is_explained")
    assert table("remedies").keys() == set(Cause) == {Cause(cause) for cause, *_ in explained}
    said = {told(cause, data).happened for cause, data, *_ in explained}
    assert len(said) >= sum(map(len, table("remedies").values()))
    named = {name for entry in table("remedies")["killed"] for name in entry.get("when", {}).get("signal", ())}
    assert named <= {each.name for each in signal.Signals}


def test_what_others_have_said_is_cut_and_never_taken_for_a_template() -> None:
    found = told(Cause.HANDSHAKE_REFUSED, {"error": "{server} {9} " + "x" * LINE})
    assert found.happened.startswith("It refused the handshake: {server} {9} xxx")
    assert len(found.happened) < SHOWN + 40


def test_nothing_is_made_up() -> None:
    for reason in (HEALTHY, Reason("an operator asked for it")):
        assert by_cause("git", by_words("git", reason, ["No module named 'x'"])) == reason


def test_one_logs_in_to_the_server_of_an_instance_and_restarts_the_instance() -> None:
    for cause, helps in ((Cause.LOGIN_NEEDED, "`mcpd login git`"), (Cause.FORBIDDEN, "`mcpd restart git#3`")):
        remedy = by_cause("git#3", Reason("", cause, {"place": "h:443"})).remedy
        assert remedy is not None
        assert helps in remedy.helps


@pytest.mark.parametrize("name", ["git@/tmp/mcpd-list-x", "git#0", "git#0.2"])
def test_one_restarts_the_server_of_an_instance_that_soon_ends(name: str) -> None:
    remedy = by_cause(name, Reason("", Cause.FORBIDDEN, {"place": "h:443"})).remedy
    assert remedy is not None
    assert "`mcpd restart git`" in remedy.helps


@pytest.mark.parametrize("place", ["/home/me;/_npx/e5", "/$(id)/_npx/e5", f"/{'x/' * 60}_npx/e5"])
def test_no_command_has_a_path_that_a_shell_reads_or_that_is_cut(place: str) -> None:
    for said in ("- ", "Cannot find module '"):
        remedy = by_words("git", Reason("", Cause.ENDED), [f"{said}{place}/node_modules/x.js'"]).remedy
        assert remedy is None or "rm -r" not in remedy.helps


# --- by last words ------------------------------------------------------------------------------------------


@cases("said", "happened", "helps")
def test_what_a_program_said_last_is_explained(said: str, happened: str, helps: str) -> None:
    found = told(*FAILED, said)
    assert found.by_words
    assert happened in found.happened
    assert helps in found.helps
    read_well(found)


def test_every_pattern_is_the_first_that_fits_one_of_the_cases() -> None:
    patterns = [re.compile(entry["pattern"]) for entry in table("words")["words"]]
    lines = [said for said, *_ in rows_of(Path(__file__), "what_a_program_said_last_is_explained")]
    first = {next(n for n, pattern in enumerate(patterns) if pattern.search(said)) for said in lines}
    assert first == set(range(len(patterns)))


@cases("lines", "happened")
def test_of_many_lines_the_one_that_matters_is_read(lines: list[str], happened: str) -> None:
    assert happened in told(*FAILED, *lines).happened


def test_words_from_long_ago_or_far_out_in_a_line_are_not_read() -> None:
    assert told(*FAILED, "No module named 'psycopg'", *["tick"] * LINES) == told(*FAILED)
    assert told(*FAILED, " " * LINE + "No module named 'psycopg'") == told(*FAILED)


@pytest.mark.parametrize(
    ("cause", "data"), [(Cause.KILLED, {"signal": "SIGKILL"}), (Cause.REFUSED, {"place": "h:1"})]
)
def test_a_cause_that_says_enough_is_not_overruled_by_old_words(cause: Cause, data: dict[str, Any]) -> None:
    assert told(cause, data, "ModuleNotFoundError: No module named 'x'") == told(cause, data)
    assert not needs_words(Reason("", cause, data))


@cases("cause", "data")
def test_a_cause_that_leaves_open_why_asks_for_words(cause: str, data: dict[str, Any]) -> None:
    assert needs_words(Reason("", Cause(cause), data))
    assert "No module" not in told(cause, data).happened
    assert "psycopg" in told(cause, data, "No module named 'psycopg'").happened


@pytest.mark.parametrize("unit", ["A", "A_", "a.", "Error: ", "npm ERR! ", "\x00", "not found: "])
def test_hostile_words_are_read_in_the_end(unit: str) -> None:
    told(*FAILED, *[unit * (8192 // len(unit))] * LINES)


def test_a_program_that_prints_its_usage_and_calls_that_a_success_is_told_so() -> None:
    found = told(Cause.ENDED, {}, "Usage: foo --dir DIR")
    assert found.happened == "It only printed its usage: foo --dir DIR."
