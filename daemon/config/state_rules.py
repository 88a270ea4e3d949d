"""What must hold for `state.url`: a place that the store can use, as far as one can tell without looking."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.config.hints import quoted
from daemon.config.metrics_rules import MAX_PORT
from daemon.config.trail import below
from daemon.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.config.model import State

SQLITE_EXAMPLE = "sqlite:////var/lib/mcpd/state.db"
POSTGRESQL_EXAMPLE = "postgresql://USER@HOST/DATABASE"

_URL = re.compile(
    r"(?P<scheme>[\w+]+)://(?:(?P<login>[^:/]*(?::[^@]*)?)@)?"
    r"(?P<host>\[[^/?]+\]|[^/:?]*)(?::(?P<port>[^/?]*))?(?:/(?P<path>[^?]*))?(?P<query>\?.*)?",
    re.DOTALL,
)
"""As SQLAlchemy reads it: a password may hold anything but an @."""

_RESERVED = re.compile(r"[/?#]")
"""What a user or a password must spell in percent: other readers of the url would see it end there."""


def state_faults(state: State, trail: str) -> Iterator[Fault]:
    """What is wrong with `state`; no message repeats the url, which may hold a password."""
    if state.url is not None and (message := _wrong(state.url)):
        yield Fault(path=below(trail, "url"), message=message)


def _wrong(url: str) -> str:
    found = _URL.fullmatch(url)
    if found is None:
        return f"this is no url: write {SQLITE_EXAMPLE} or {POSTGRESQL_EXAMPLE}"
    backend, _, driver = found["scheme"].partition("+")
    if backend == "sqlite":
        return _wrong_file(found, driver)
    if backend == "postgresql":
        return _wrong_server(found, driver)
    return f"{quoted(backend)} is no place for it: write {SQLITE_EXAMPLE} or {POSTGRESQL_EXAMPLE}"


def _wrong_file(found: re.Match[str], driver: str) -> str:
    path: str = found["path"] or ""
    if driver not in {"", "pysqlite"}:
        return f"{quoted(driver)} is not used here: write sqlite:// without a driver"
    if found["query"]:
        return "a url of sqlite has no parameters here: remove what follows the ?"
    if found["host"] or found["login"] or not path.startswith("/"):
        return f"the path must be absolute, with four slashes: {SQLITE_EXAMPLE}"
    return "" if path.strip("/") and not path.endswith("/") else f"this names no file: write {SQLITE_EXAMPLE}"


def _wrong_server(found: re.Match[str], driver: str) -> str:
    if driver not in {"", "psycopg"}:
        return f"{quoted(driver)} is not used here: write postgresql:// without a driver"
    if "@" in found["host"] or _RESERVED.search(found["login"] or ""):
        return "write @, / ? and # in its user and password as %40, %2F, %3F and %23"
    port = found["port"]
    if port is None or (port.isascii() and port.isdecimal() and 0 < int(port) <= MAX_PORT):
        return ""
    return f"its port is no number up to {MAX_PORT}: write {POSTGRESQL_EXAMPLE}, or HOST:PORT for the host"
