"""Lazy imports: a daemon starts faster and stays smaller without modules that it never uses.

Use it for modules that take at least 5 ms or 1 MB. A module that a client's call may need is `due`, and is
loaded once clients are served: a daemon without free file descriptors can load nothing, yet has to answer.
"""

from __future__ import annotations

import importlib
import re
import threading
from types import ModuleType
from typing import Any, AnyStr

_one_at_a_time = threading.RLock()
"""Held while modules load: two threads that load modules importing each other would see half of one."""

_due: set[str] = set()


def later(module: str, what: str = "", *, due: bool = False) -> Any:
    """A proxy that loads a module, or `what` in it, on first use; `load_due` loads it if `due`."""
    if due:
        _due.add(module)
    return _Later(module, what)


def load_due() -> None:
    """Load everything `due`. Blocks for 20 ms. Raises ImportError, OSError: the first use tries again."""
    for module in sorted(_due):
        _load(module)


def _load(module: str) -> ModuleType:
    with _one_at_a_time:
        return importlib.import_module(module)


class _Later:
    def __init__(self, module: str, what: str) -> None:
        self._module = module
        self._what = what

    def __getattr__(self, name: str) -> Any:
        # Called only for attributes that are not set yet.
        found = getattr(self._loaded(), name)
        setattr(self, name, found)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._loaded()(*args, **kwargs)

    def _loaded(self) -> Any:
        module = _load(self._module)
        return getattr(module, self._what) if self._what else module


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A regular expression that is compiled on first use: a start needs few, and all take 20 ms to compile."""
    proxy: Any = _Pattern(text, flags)
    compiled: re.Pattern[AnyStr] = proxy
    return compiled


class _Pattern:
    def __init__(self, *given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        # As above.
        found = getattr(re.compile(*self._given), name)
        setattr(self, name, found)
        return found
