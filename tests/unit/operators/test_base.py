"""What commands have in common."""

from daemon.catalog.loaded import LoadedStatus, Source
from daemon.config.config_model import DEFAULT_SURFACE
from daemon.operators.report_words import ADVICE, NAMED, SOURCES, STATUSES, advice, switches
from tests.unit.operators.stage import OperatorStage, operator_context


def test_the_state_of_a_server_is_its_childs_where_it_has_one() -> None:
    daemon = OperatorStage()
    assert daemon.context().state_of("alpha") == {"state": "stopped", "reason": ""}
    assert operator_context(daemon.stage).state_of("alpha") == {"state": "ready", "reason": ""}
    assert daemon.context().state_of("gone") == {"state": "", "reason": ""}


def test_everything_has_words_and_all_that_is_invalid_has_advice() -> None:
    assert {*STATUSES} == {*LoadedStatus}
    assert {*SOURCES} == {*Source}
    assert {*ADVICE} == {*LoadedStatus} - {LoadedStatus.VALID}


def test_advice_names_the_tool() -> None:
    tool = {"server": "git", "name": "log", "status": "invalid_disabled"}
    assert advice(tool) == "Switch it on: `mcpd enable git/log`, or in the configuration."
    assert advice({**tool, "status": "invalid_renamed"}).endswith("unknown.")
    assert advice({**tool, "status": "valid"}) == ""
    # Its server has named it, and an operator copies the command into a shell.
    assert "`mcpd enable 'git/a;$(id)'`" in advice({**tool, "name": "a;$(id)"})


def test_the_switches_are_told_by_profile_and_not_without_end() -> None:
    surfaces = {"default": "category", "off": "full"}
    assert switches(lazy=True, surfaces=surfaces).endswith("default shows category, off shows full")
    assert switches(lazy=False, surfaces=surfaces) == "lazy loading is off: every profile lists all tools"
    many = {f"p{number}": "load" for number in range(NAMED + 2)}
    assert switches(lazy=True, surfaces=many).endswith("p9 shows load, 2 more")
    # A profile that names no surface has the one that fits; the words know it without loading the model.
    assert "the surface that fits each client" in switches(lazy=True, surfaces={"default": DEFAULT_SURFACE})
