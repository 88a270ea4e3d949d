"""Urls of PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import sqlalchemy as sa

from daemon.store.urls import POSTGRESQL, Url, unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

DRIVER = "postgresql+psycopg"
"""The one driver that is tested; a url that names another one would run untested code."""

_SECRET = {"password", "sslpassword", "passfile", "oauth_client_secret"}
"""Parameters of a url whose values nobody may see."""


def parse(url: str) -> Url:
    """A url that can work, as far as one can tell without looking.

    Raises:
        StoreFault: MISCONFIGURED. The text does not repeat the url, which may hold a password.
    """
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        unusable("it is no url")
    backend = parsed.drivername.partition("+")[0]
    if backend != POSTGRESQL:
        unusable(f"mcpd keeps its state in sqlite or postgresql, not in {backend!r}")
    if parsed.drivername not in {POSTGRESQL, DRIVER}:
        unusable(f"the driver is psycopg: write postgresql://, not {parsed.drivername}://")
    parsed = parsed.set(drivername=DRIVER)
    reaching = parsed.render_as_string(hide_password=False)
    return Url(where=_where(parsed), dsn=reaching, secrets=tuple(_secrets(parsed)))


def _where(url: sa.URL) -> str:
    host = url.host or _first(url.query.get("host")) or "localhost"
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{host}{port}/{url.database or ''}"


def _secrets(url: sa.URL) -> Iterator[str]:
    values = [str(url.password)] if url.password else []
    for name in _SECRET & url.query.keys():
        value = url.query[name]
        values += [value] if isinstance(value, str) else value
    for value in values:
        yield from (value, quote(value, safe=""))


def _first(value: str | tuple[str, ...] | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else value[0]
