"""Secrets that are moved out of entries."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.setup.moved_secrets import Variables, asked_as_variables, references, variable, with_references
from tests.unit.cases import cases

KEY = "bk-7Qm2xV9bT4Zr8Lw1"


@cases("entry", "moved", "kept")
def test_secrets_become_variables(entry: dict[str, Any], moved: dict[str, Any], kept: dict[str, str]) -> None:
    variables = Variables(known={})
    assert with_references(entry, "git-hub", {KEY}, variables) == moved
    assert variables.kept == kept
    assert KEY not in repr(variables)


def test_a_name_that_has_another_value_gets_a_number() -> None:
    variables = Variables(known={"A_B__API_KEY": "another"})
    assert variables.keep("a-b", "API_KEY", "mine") == "${A_B__API_KEY_2}"
    assert variables.keep("a-b", "API_KEY", "mine") == "${A_B__API_KEY_2}"
    assert variables.keep("a_b", "API_KEY", "another") == "${A_B__API_KEY}"
    assert variables.kept == {"A_B__API_KEY_2": "mine", "A_B__API_KEY": "another"}


def test_what_a_file_of_variables_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="carriage return"):
        Variables(known={}).keep("s", "KEY", "a\rb")


def test_references_are_found_by_name() -> None:
    entry = {"args": ["${A}", "$${B}", "${C:-default}", "${workspaceFolder}"], "env": {"X": "a${env:D}b${A}"}}
    assert references(entry) == ["A", "D"]


def test_what_a_client_would_ask_for_is_a_variable() -> None:
    assert asked_as_variables({"env": {"K": "${input:perplexity-key}"}}) == {"env": {"K": "${PERPLEXITY_KEY}"}}
    assert variable("9-lives") == "_9_LIVES"
