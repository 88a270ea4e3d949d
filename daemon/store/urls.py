"""The url of a store, and what of it people may be shown.

One of a file is read here. Those of PostgreSQL are left to `postgres_urls`, which loads SQLAlchemy.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import attrs

from daemon.redact import Redactor
from daemon.store.faults import Kind, StoreFault

if TYPE_CHECKING:
    from typing import NoReturn

SQLITE, POSTGRESQL = "sqlite", "postgresql"

OF_SERVERS = "daemon.store.postgres_urls"
"""Has `parse` for what is kept by a server."""

WITHOUT_DRIVER = "PostgreSQL needs a driver that is not installed"

_URL = re.compile(
    r"(?P<backend>\w+)(?P<driver>\+\w+)?://(?P<host>[^/?]*)(?P<database>/[^?]*)?(\?(?P<query>.*))?"
)


@attrs.frozen(kw_only=True)
class Url:
    """Where a store is."""

    path: Path | None = None
    """The file; None where it is a server's."""
    where: str
    """The same for people: a path, or a host and a database. Users are left out, they can be tokens."""
    dsn: str = attrs.field(default="", repr=False)
    """What reaches a server."""
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """What nobody may see of it."""

    @property
    def redactor(self) -> Redactor:
        """Takes its passwords out of a driver's words."""
        return Redactor(secret for secret in self.secrets if secret)


def parse(url: str) -> Url:
    """A url that can work, as far as one can tell without looking.

    Raises:
        StoreFault: MISCONFIGURED. The text does not repeat the url, which may hold a password.
    """
    found = _URL.fullmatch(url)
    if found is None:
        unusable("it is no url")
    if found["backend"] == SQLITE:
        return _of_file(found)
    try:
        of_servers: Any = importlib.import_module(OF_SERVERS)
    except ImportError as error:
        no_driver("state.url", error)
    parsed: Url = of_servers.parse(url)
    return parsed


def of_file(path: Path) -> str:
    """The url of a file of SQLite, whatever characters its path has."""
    return f"{SQLITE}:///{quote(str(path), errors='surrogateescape')}"


def no_driver(where: str, error: ImportError) -> NoReturn:
    """Say what is missing for PostgreSQL.

    Raises:
        StoreFault: MISCONFIGURED.
    """
    advice = "Install it: pip install 'mcpd-supervisor[postgres]'"
    raise StoreFault(Kind.MISCONFIGURED, where, f"{WITHOUT_DRIVER} ({error})", advice) from None


def unusable(why: str) -> NoReturn:
    """Say what is wrong with a url.

    Raises:
        StoreFault: MISCONFIGURED.
    """
    raise StoreFault(Kind.MISCONFIGURED, "state.url", why)


def _of_file(found: re.Match[str]) -> Url:
    if found["driver"] not in {None, "+pysqlite"}:
        unusable(f"the driver is Python's own: write sqlite:///, not {SQLITE}{found['driver']}://")
    if found["query"]:
        unusable("a url of sqlite has no parameters here: remove what follows the ?")
    path = unquote((found["database"] or "")[1:], errors="surrogateescape")
    if found["host"] or not path.startswith("/"):
        unusable("it must name an absolute path, with four slashes: sqlite:////var/lib/mcpd/state.db")
    # For people, and in JSON: a name of other bytes than UTF-8 is shown as nearly as that goes.
    return Url(path=Path(path), where=os.fsencode(path).decode(errors="replace"))
