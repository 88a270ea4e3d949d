"""References within a JSON schema, and what they lead to."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

MAX_HOPS = 16
"""Most references that are followed in a row: a circle ends here."""


def resolve(root: Any, reference: object) -> Any:
    """What `#/...` resolves to within `root`: further references are followed if they stand alone.

    Args:
        root: the whole schema.
        reference: the value of a `$ref`; one that leaves the schema, or names an anchor, resolves to None.
    """
    for _ in range(MAX_HOPS):
        found = target(root, reference)
        if not isinstance(found, dict) or "$ref" not in found or len(found) > 1:
            return found
        reference = found["$ref"]
    return None


def target(root: Any, reference: object) -> Any:
    """What `#/...` points to within `root` (RFC 6901), one step; None if there is nothing."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    return _at(root, unquote(reference[1:]))


def _at(place: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        step = token.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict):
            place = place.get(step)
        elif isinstance(place, list):
            place = dict(zip(map(str, range(len(place))), place, strict=True)).get(step)
        else:
            return None
    return place
