"""Whether two configurations are one and the same: equal, and in the same order everywhere.

Equality alone does not tell: servers, categories and profiles are shown in the order in which the file has
them, and a mapping equals another one in a different order.
"""

from __future__ import annotations

import attrs


def same(one: object, other: object) -> bool:
    """Whether two configurations, or parts of them, have the same values in the same order."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(item, other[key]) for key, item in one.items())
    if attrs.has(kind):
        names = [field.name for field in attrs.fields(kind)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    return one == other
