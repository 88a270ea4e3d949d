"""The tables of other clients' keys agree with each other and with mcpd's own."""

from __future__ import annotations

import pytest

from daemon.config.client_keys import BESIDE_SECTIONS, RENAMED, SECTIONS, WAITS, understood, understood_keys
from daemon.config.model import Config, Server, Timeouts
from daemon.config.structure import keys


def test_no_key_stands_in_two_tables_and_none_is_ours() -> None:
    folded = [key.replace("_", "").lower() for key in understood_keys()]
    assert len(folded) == len(set(folded))
    assert not set(folded) & {key.lower() for key in keys(Server)} - {"envfile"}
    assert not {*SECTIONS, *BESIDE_SECTIONS} & set(keys(Config))


def test_what_a_key_becomes_is_a_key_of_ours() -> None:
    assert set(RENAMED.values()) <= set(keys(Server))
    assert {wait.key for wait in WAITS.values()} <= set(keys(Timeouts))


@pytest.mark.parametrize("key", understood_keys())
def test_each_key_is_explained_in_a_sentence(key: str) -> None:
    said = understood(key)
    assert said[0].isupper()
    assert said.endswith(".")


def test_any_other_key_is_not() -> None:
    assert not understood("comand")
