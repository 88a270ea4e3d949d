"""Trails are spelled as in the file."""

from __future__ import annotations

import pytest

from daemon.config.jsonc import below


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
