"""The commands that operators have."""

from __future__ import annotations

import msgspec

from daemon.operators.command_table import COMMANDS


def test_every_command_is_found_by_its_own_name() -> None:
    assert [command.name for command in COMMANDS.values()] == list(COMMANDS)
    assert len(COMMANDS) == 31


def test_every_command_takes_an_object_of_named_parameters() -> None:
    for command in COMMANDS.values():
        assert issubclass(command.params, msgspec.Struct)
        assert command.run.__doc__
