"""The url of a store, and what of it people may be shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import sqlalchemy as sa

from daemon.redact import Redactor
from daemon.store.faults import Kind, StoreFault

if TYPE_CHECKING:
    from collections.abc import Iterator

SQLITE, POSTGRESQL = "sqlite", "postgresql"

DRIVER = "postgresql+psycopg"
"""The one driver that is tested; a url that names another one would run untested code."""

_SECRET = {"password", "sslpassword", "passfile", "oauth_client_secret"}
"""Parameters of a url of PostgreSQL whose values nobody may see."""


def parse(url: str) -> sa.URL:
    """A url that can work, as far as one can tell without looking.

    Raises:
        StoreFault: MISCONFIGURED. The text does not repeat the url, which may hold a password.
    """
    try:
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
    except (sa.exc.ArgumentError, ValueError):
        raise _unusable("state.url", "it is no url") from None
    if backend == SQLITE:
        return _sqlite(parsed)
    if backend != POSTGRESQL:
        raise _unusable("state.url", f"mcpd keeps its state in sqlite or postgresql, not in {backend!r}")
    if parsed.drivername not in {POSTGRESQL, DRIVER}:
        raise _unusable("state.url", f"the driver is psycopg: write postgresql://, not {parsed.drivername}://")
    return parsed.set(drivername=DRIVER)


def where(url: sa.URL) -> str:
    """Which store, for people: a path, or a host and a database. Users are left out, they can be tokens."""
    if url.get_backend_name() == SQLITE:
        return str(url.database)
    host = url.host or _first(url.query.get("host")) or "localhost"
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{host}{port}/{url.database or ''}"


def of_file(path: Path) -> str:
    """The url of a file of SQLite, whatever characters its path has."""
    return sa.URL.create(SQLITE, database=str(path)).render_as_string()


def path_of(url: sa.URL) -> Path:
    """The file of a store in SQLite."""
    return Path(str(url.database))


def redactor(url: sa.URL) -> Redactor:
    """Takes the passwords of a url out of a driver's words."""
    return Redactor(secret for secret in _secrets(url) if secret)


def _secrets(url: sa.URL) -> Iterator[str]:
    values = [str(url.password)] if url.password else []
    for name in _SECRET & url.query.keys():
        value = url.query[name]
        values += [value] if isinstance(value, str) else value
    for value in values:
        yield from (value, quote(value, safe=""))


def _sqlite(url: sa.URL) -> sa.URL:
    if url.drivername not in {SQLITE, "sqlite+pysqlite"}:
        raise _unusable("state.url", f"the driver is Python's own: write sqlite:///, not {url.drivername}://")
    if url.query:
        raise _unusable("state.url", "a url of sqlite has no parameters here: remove what follows the ?")
    if url.host or not url.database or not url.database.startswith("/"):
        why = "it must name an absolute path, with four slashes: sqlite:////var/lib/mcpd/state.db"
        raise _unusable("state.url", why)
    return url


def _first(value: str | tuple[str, ...] | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else value[0]


def _unusable(where_: str, why: str) -> StoreFault:
    return StoreFault(Kind.MISCONFIGURED, where_, why)
