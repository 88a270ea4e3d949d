"""Trails are spelled as in the file."""

from __future__ import annotations

import pytest

from daemon.config.trail import below, camel


@pytest.mark.parametrize(
    ("step", "trail"),
    [
        ("git", "$.git"),
        (1, "$[1]"),
        ("a-b_c", "$.a-b_c"),
        ("a.b", '$["a.b"]'),
        ("a b", '$["a b"]'),
        ("", '$[""]'),
        ("é", '$["\\u00e9"]'),
        ('"', '$["\\""]'),
    ],
)
def test_a_step_that_could_be_misread_is_quoted(step: str | int, trail: str) -> None:
    assert below("$", step) == trail


@pytest.mark.parametrize(
    ("name", "key"), [("name", "name"), ("stop_eof", "stopEof"), ("mcp_servers", "mcpServers")]
)
def test_attributes_are_camel_case_in_the_file(name: str, key: str) -> None:
    assert camel(name) == key
