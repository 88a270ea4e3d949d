"""What commands have in common."""

from __future__ import annotations

from tests.fakes_upstream import Stage
from tests.unit.operators.stage import OperatorStage, operator_context


def test_the_state_of_a_server_is_its_childs_where_it_has_one() -> None:
    daemon = OperatorStage()
    assert daemon.context().state_of("alpha") == {"state": "stopped", "reason": ""}
    assert operator_context(daemon.stage).state_of("alpha") == {"state": "ready", "reason": ""}
    assert daemon.context().state_of("gone") == {"state": "", "reason": ""}


def test_a_name_that_no_server_has_is_told_with_the_closest() -> None:
    context = operator_context(Stage())
    assert context.unknown("alfa").message == "no server is named 'alfa'. Did you mean alpha?"
    assert context.unknown("zzz").message == "no server is named 'zzz'. There are: alpha, beta."
