"""Lazy imports: modules that are loaded on first use, which in most daemons never comes.

    if TYPE_CHECKING:
        import cryptography
    else:
        cryptography = later("cryptography")

A daemon starts faster and stays smaller without what it does not use. This is for modules that take at least
5 ms or 1 MB; everything else is imported at the top.

What a client's call may need is `due`: it is loaded as soon as clients are served, because a daemon that has
run out of file descriptors can no longer load anything, yet still has to answer.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

_one_at_a_time = threading.RLock()
"""Held while a module is loaded. Python has a lock for each module: of two threads that load modules which
import each other, one would be given half a module. Reentrant: what is loaded may load more."""

_due: set[str] = set()


def later(module: str, what: str = "", *, due: bool = False) -> Any:
    """A proxy for a module, or for a class or function in it, that loads it on first use.

    Args:
        module: the full name of the module.
        what: the name of a class or function in it; empty for the module itself.
        due: whether `load_due` loads it.
    """
    if due:
        _due.add(module)
    return _Later(module, what)


def load_due() -> None:
    """Load every module that is `due`. Blocks for about 20 ms, and reads files.

    Raises:
        ImportError, OSError: a module cannot be loaded now; it is tried again on first use.
    """
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
