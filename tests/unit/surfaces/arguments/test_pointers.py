"""References within a schema (RFC 6901)."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.config.jsonc import resolve

ROOT: dict[str, Any] = {
    "$defs": {"a": {"type": "string"}, "b/c": {"x": 1}, "d~e": {"y": 2}, "hop": {"$ref": "#/$defs/a"}},
    "circle": {"$ref": "#/circle"},
    "list": [{"z": 3}],
}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", ROOT),
        ("#/$defs/a", {"type": "string"}),
        ("#/%24defs/a", {"type": "string"}),
        ("#/$defs/b~1c", {"x": 1}),
        ("#/$defs/d~0e", {"y": 2}),
        ("#/$defs/hop", {"type": "string"}),
        ("#/list/0/z", 3),
        ("#/list/1", None),
        ("#/list/x", None),
        ("#/nowhere/at/all", None),
        ("#/circle", None),
        ("https://example.com#/$defs/a", None),
        (None, None),
        (7, None),
    ],
)
def test_a_reference_leads_to_its_place_or_nowhere(reference: object, found: object) -> None:
    assert resolve(ROOT, reference) == found
