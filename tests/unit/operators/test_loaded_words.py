"""Every status and every source of loaded tools has its words."""

from daemon.catalog.loaded import LoadedStatus, Source
from daemon.operators.loaded_words import ADVICE, SOURCES, STATUSES, advice


def test_everything_has_words_and_all_that_is_invalid_has_advice() -> None:
    assert {*STATUSES} == {*LoadedStatus}
    assert {*SOURCES} == {*Source}
    assert {*ADVICE} == {*LoadedStatus} - {LoadedStatus.VALID}


def test_advice_names_the_tool() -> None:
    tool = {"server": "git", "name": "log", "status": "invalid_disabled"}
    assert advice(tool) == "Switch it on: `mcpd enable git/log`, or in the configuration."
    assert advice({**tool, "status": "invalid_renamed"}).endswith("unknown.")
    assert advice({**tool, "status": "valid"}) == ""
