"""What clients write as values takes mcpd's shape, or is left as it is where its type is another one."""

import pytest

from daemon.config.client_keys import command_line, fold, referring, shaped, table
from tests.unit.cases import cases

SHAPED = [fold(key) for meant in table().server if meant.shaped for key in meant.keys]


@pytest.mark.parametrize("key", SHAPED)
def test_each_key_with_a_shape_of_its_own_has_one(key: str) -> None:
    assert any(shaped(key, value) for value in (True, "x", {"headers": {"A": "B"}}, {"A": "B"}, ["A"]))


@pytest.mark.parametrize("key", SHAPED)
@pytest.mark.parametrize("value", [None, 3, [1], {"headers": 3}])
def test_a_value_of_another_type_is_left(key: str, value: object) -> None:
    assert shaped(key, value) is None or key in {"auth", "scopes"}


@pytest.mark.parametrize("value", ["run:id", ["run:id"], {"A": "run:id"}])
def test_a_key_that_names_a_variable_names_no_command(value: object) -> None:
    assert not [key for key in SHAPED if "${run:" in str(shaped(key, value))]


@cases("command", "words")
def test_a_command_line_is_told_from_a_path_with_spaces(command: object, words: list[str] | None) -> None:
    assert command_line(command) == words


@cases("value", "found")
def test_references_of_other_clients_are_spelt_as_ours(value: object, found: object) -> None:
    assert referring(value, []) == found
