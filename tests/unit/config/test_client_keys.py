"""The table of other clients' keys agrees with itself and with mcpd's, and values take mcpd's shape."""

import attrs
import pytest

from daemon.config import client_keys, config_model, listen
from daemon.config.client_keys import command_line, fold, referring, shaped, table
from daemon.config.config_model import Config, OAuth, Server, TransportType
from daemon.config.structure import keys
from daemon.config.tuning import Timeouts
from tests.unit.cases import cases

KEYS = [key for meant in client_keys.table().server for key in meant.keys]


def test_no_key_stands_there_twice_none_is_ours_and_what_each_becomes_is_ours() -> None:
    folded = [client_keys.fold(key) for key in KEYS]
    assert len(folded) == len(set(folded))
    assert not set(folded) & {key.lower() for key in keys(Server)} - {"envfile", "auth", "trust"}
    assert not {*client_keys.table().sections, *client_keys.top_level_keys()} & set(keys(Config))

    table = client_keys.table()
    assert {meant.becomes for meant in table.server} - {""} <= set(keys(Server))
    assert {meant.limits for meant in table.server} - {""} <= set(keys(Timeouts))
    assert set(table.oauth.values()) <= set(keys(OAuth))
    assert set(table.types.values()) <= set(TransportType)


def test_a_key_means_one_thing() -> None:
    for meant in client_keys.table().server:
        said = [meant.becomes, meant.limits, meant.shaped, meant.lost, meant.ignored]
        assert len(list(filter(None, said))) == 1, meant.keys


def test_each_key_is_explained_in_a_sentence_and_no_key_of_ours_is_listed_as_one_that_is_not_there() -> None:
    for meant in client_keys.keys_of_servers().values():
        assert (meant.sentence[0].isupper(), meant.sentence[-1]) == (True, ".")
    for name, instead in client_keys.table().instead.items():
        cls = {**vars(listen), **vars(config_model)}[name]
        assert attrs.has(cls)
        assert not set(instead) & set(keys(cls))


SHAPED = [fold(key) for meant in table().server if meant.shaped for key in meant.keys]


@pytest.mark.parametrize("key", SHAPED)
def test_each_key_with_a_shape_of_its_own_has_one_and_a_value_of_another_type_is_left(key: str) -> None:
    assert any(shaped(key, value) for value in (True, "x", {"headers": {"A": "B"}}, {"A": "B"}, ["A"]))
    others: list[object] = [None, 3, [1], {"headers": 3}]
    assert key in {"auth", "scopes"} or not any(shaped(key, value) for value in others)


@pytest.mark.parametrize("value", ["run:id", ["run:id"], {"A": "run:id"}])
def test_a_key_that_names_a_variable_names_no_command(value: object) -> None:
    assert not [key for key in SHAPED if "${run:" in str(shaped(key, value))]


@cases("command", "words")
def test_a_command_line_is_told_from_a_path_with_spaces(command: object, words: list[str] | None) -> None:
    assert command_line(command) == words


@cases("value", "found")
def test_references_of_other_clients_are_spelt_as_ours(value: object, found: object) -> None:
    assert referring(value, []) == found
