"""A key of the configuration and the value that it is to have: what is asked of `setup.settings`."""

from __future__ import annotations

from enum import Enum

import attrs


class Unset(Enum):
    """In place of a value: the key is removed, so that its default counts."""

    UNSET = "unset"


UNSET = Unset.UNSET


@attrs.frozen(kw_only=True)
class Setting:
    """A key of the configuration, and the value that it is to have."""

    trail: tuple[str, ...]
    """The keys that lead to it: `("profiles", "reader", "lazy")`."""
    value: object
    """What is to stand there, in plain types; `UNSET`: nothing."""
    holder_is_its: bool = False
    """Whether the object that holds it is there for it, and is removed if nothing else is left in it."""
