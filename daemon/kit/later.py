"""Modules that are loaded when something of them is used first, which in most daemons is never.

    if TYPE_CHECKING:
        import h11
    else:
        h11 = later("h11")

A daemon is up the sooner, and the smaller, by what it does not use. This is for what takes 5 ms or 1 MB at
least; everything else is imported at the top.

What a client's call may need is `due`: it is loaded as soon as clients are served, since a daemon without a
descriptor to spare cannot load anything any more, and has to answer all the same.
"""

from __future__ import annotations

import importlib
from typing import Any

_due: set[str] = set()


def later(module: str, what: str = "", *, due: bool = False) -> Any:
    """Stands for a module, or for a class or a function in it, until it is used.

    Args:
        module: its full name.
        what: the name of something in it; empty for the module itself.
        due: whether `load_due` loads it.
    """
    if due:
        _due.add(module)
    return _Later(module, what)


def load_due() -> None:
    """Load what was put off only until now. Blocks for some 20 ms, and reads files.

    Raises:
        ImportError, OSError: it cannot be loaded now; it is tried again when it is used.
    """
    for module in sorted(_due):
        importlib.import_module(module)


class _Later:
    def __init__(self, module: str, what: str) -> None:
        self._module = module
        self._what = what

    def __getattr__(self, name: str) -> Any:
        # Only for what was not asked for before.
        found = getattr(self._loaded(), name)
        setattr(self, name, found)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._loaded()(*args, **kwargs)

    def _loaded(self) -> Any:
        module = importlib.import_module(self._module)
        return getattr(module, self._what) if self._what else module
