"""Lazy imports: a daemon starts faster and stays smaller without modules that it never uses.

Use it for modules that take at least 5 ms or 1 MB. A module that a client's call may need is `due`, and is
loaded once clients are served: a daemon without free file descriptors can load nothing, yet has to answer.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, AnyStr, cast

_one_at_a_time = threading.RLock()
"""Held while modules load: two threads that load modules importing each other would see half of one."""

_due: set[str] = set()


def later(module: str, what: str = "", *, due: bool = False) -> Any:
    """A proxy that loads a module, or `what` in it, on first use; `load_due` loads it if `due`."""
    if due:
        _due.add(module)
    return _Later(partial(_loaded, module, what))


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A regular expression that is compiled on first use: a start needs few, and all take 20 ms to compile."""
    return cast("re.Pattern[AnyStr]", _Later(partial(re.compile, text, flags)))


def load_due() -> None:
    """Load everything `due`. Blocks for 20 ms. Raises ImportError, OSError: the first use tries again."""
    for module in sorted(_due):
        _load(module)


def _load(module: str) -> ModuleType:
    with _one_at_a_time:
        return importlib.import_module(module)


def _loaded(module: str, what: str) -> Any:
    return getattr(_load(module), what) if what else _load(module)


class _Later:
    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        # Called only for attributes that are not set yet.
        found = getattr(self._make(), name)
        setattr(self, name, found)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._make()(*args, **kwargs)
