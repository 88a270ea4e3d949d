"""Urls that SQLAlchemy reads; what is said of others, all urls share (`test_urls`)."""

from __future__ import annotations

import psycopg
import pytest

from daemon.store.postgres_urls import parse


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:p%40ss%2Fw@db.example:5433/mcpd?sslmode=require",
        "postgresql:///mcpd?host=%2Frun%2Fpostgresql",
        "postgresql://[::1]/mcpd",
    ],
)
def test_what_is_handed_on_reaches_the_same_place(url: str) -> None:
    dsn = parse(url).dsn
    assert dsn.startswith("postgresql+psycopg://")
    said = psycopg.conninfo.conninfo_to_dict(dsn.replace("+psycopg", ""))
    assert said == psycopg.conninfo.conninfo_to_dict(url)


def test_neither_the_url_nor_its_password_is_shown() -> None:
    assert "s3cret" not in repr(parse("postgresql://me:s3cret@db/mcpd"))
