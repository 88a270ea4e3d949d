"""Causes are a contract of words: each is documented and set somewhere."""

import re
from pathlib import Path

from daemon.causes import HEALTHY, Cause, Reason, of_errno, of_status
from tests.unit.cases import cases

ROOT = Path(__file__).parent.parent.parent


def test_a_cause_is_a_word_of_lower_case_and_hyphens_made_of_its_name() -> None:
    for cause in Cause:
        assert cause.value == cause.name.lower().replace("_", "-")
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cause.value)


def test_a_reason_is_redacted_in_words_and_data_and_keeps_its_numbers() -> None:
    reason = Reason("no hush", Cause.EXITED, {"command": "hush", "status": 1})
    assert reason.redacted(lambda text: text.replace("hush", "***")) == Reason(
        "no ***", Cause.EXITED, {"command": "***", "status": 1}
    )
    assert HEALTHY.redacted(str.upper) == HEALTHY
    assert reason.after("again: ").text == "again: no hush"


@cases("status", "cause")
def test_an_http_status_has_a_cause(status: int, cause: str) -> None:
    assert of_status(status) == cause


def test_an_errno_has_a_cause_even_if_nothing_is_known_of_it() -> None:
    assert of_errno(111) is Cause.REFUSED
    assert of_errno(None) is Cause.CANNOT_CONNECT


def set_in(path: Path) -> set[str]:
    """The names of the causes that a module mentions as `Cause.NAME`."""
    return set(re.findall(r"\bCause\.([A-Z_]+)\b", path.read_text()))


def test_every_cause_is_set_somewhere() -> None:
    readers = {ROOT / "daemon/supervision/lifecycle.py"}
    mentioned = set().union(*(set_in(path) for path in (ROOT / "daemon").rglob("*.py") if path not in readers))
    elsewhere = {Cause.ENDED, Cause.INTERNAL}
    assert set_in(ROOT / "daemon/supervision/lifecycle.py") >= {cause.name for cause in elsewhere}
    assert {cause for cause in Cause if cause.name not in mentioned} <= elsewhere
