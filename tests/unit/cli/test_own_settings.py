"""Commands that change a key of the configuration: what they end with where it is faulty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli import implementation
from daemon.cli.settings import written

if TYPE_CHECKING:
    import pytest

    from tests.unit.cli.conftest import Controls

main = implementation("lazy").main


def test_a_faulty_configuration_is_another_end_than_a_refusal(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {"code": -32000, "message": "/c.json: 1 fault", "data": {"faults": []}}
    daemon = control({"lazy": {"error": fault}})
    assert main(["off"]) == 78
    assert "nothing was changed" in capsys.readouterr().err
    daemon.answers["lazy"] = {"error": {"code": -32000, "message": "cannot be written"}}
    assert main(["off"]) == 1


def test_what_stood_there_already_is_said_to_have() -> None:
    changed: Any = {"file": "/c.json", "place": "$.lazy", "already": True}
    assert written(changed) == "stood already at $.lazy in /c.json"
