"""Times, sizes and users as people write them: `30s`, `2GB`, `root`."""

from __future__ import annotations

import math
import pwd
import re

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_STEPS = "KMGT"

DURATION = r"(?:[1-9][0-9]{0,8}(?:\.[0-9]{1,3})?|0\.[0-9]{0,2}[1-9])(?:ms|[smhd])"
"""A time: a number and its unit."""

SIZE = r"[1-9][0-9]{0,5}(?:\.[0-9]{1,3})? ?[kKmMgGtT](?:i?[bB])?"
"""A number of bytes; six digits of TiB are below 2^63."""

USER = r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}"
"""The name of a user; useradd(8) allows less, directories more."""


def seconds(text: str) -> float:
    """The seconds of a time that matches `DURATION`, or infinity for `off`."""
    if text == "off":
        return math.inf
    number, unit = _split(text)
    return number * _SECONDS[unit]


def size(text: str) -> int:
    """The bytes of a text that matches `SIZE`: `kB` is 1000 of them, as in SI; `KiB` and `k` are 1024."""
    number, unit = _split(text)
    step = 1000 if unit[1:].lower() == "b" else 1024
    return int(number * step ** (1 + _STEPS.index(unit[0].upper())))


def user(name: str) -> int:
    """The number of a user of this machine.

    Raises:
        ValueError: there is no user of that name.
    """
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ValueError(f"this machine has no user '{name}'") from None


def _split(text: str) -> tuple[float, str]:
    found = re.match(r"[0-9.]+", text)
    assert found is not None
    return float(found[0]), text[found.end() :].strip()
