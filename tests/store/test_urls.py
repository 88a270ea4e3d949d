"""Which urls can work, and what is shown of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.store import urls
from daemon.store.faults import Kind, StoreFault


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("sqlite:////var/lib/mcpd/state.db", "/var/lib/mcpd/state.db"),
        ("postgresql://me:secret@db.example:5433/mcpd?sslmode=require", "postgresql://db.example:5433/mcpd"),
        ("postgresql+psycopg://tokenlike@db/mcpd", "postgresql://db/mcpd"),
        ("postgresql://me@/mcpd?host=/run/postgresql", "postgresql:///run/postgresql/mcpd"),
        ("postgresql:///mcpd", "postgresql://localhost/mcpd"),
        ("postgresql:///mcpd?host=a&host=b", "postgresql://a/mcpd"),
    ],
)
def test_a_good_url_has_a_place_that_can_be_shown(url: str, where: str) -> None:
    assert urls.parse(url).where == where


@pytest.mark.parametrize("path", ["/var/lib/mcpd/state.db", "/a b/ümlaut%20?x=y#z.db", "/at@host:80/x"])
def test_the_url_of_a_file_finds_that_file(path: str) -> None:
    assert urls.parse(urls.of_file(Path(path))).path == Path(path)


def test_a_place_whose_name_is_not_utf8_can_be_shown() -> None:
    assert urls.parse("sqlite:////tmp/%FF/state.db").where == "/tmp/\ufffd/state.db"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "no url"),
        ("/var/lib/mcpd/state.db", "no url"),
        ("postgresql://me:s3cret@host:port/db", "no url"),
        ("sqlite:///relative.db", "four slashes"),
        ("sqlite://", "four slashes"),
        ("sqlite:///:memory:", "four slashes"),
        ("sqlite://host/x", "four slashes"),
        ("sqlite:////state.db?mode=memory", "no parameters"),
        ("sqlite+pysqlcipher:////state.db", "Python's own"),
        ("mysql://me:s3cret@host/db", "not in 'mysql'"),
        ("nonsense://me:s3cret@host/db", "nonsense"),
        ("postgresql+asyncpg://me:s3cret@host/db", "psycopg"),
    ],
)
def test_another_url_is_refused_with_what_to_write(url: str, words: str) -> None:
    with pytest.raises(StoreFault, match=words) as fault:
        urls.parse(url)
    assert fault.value.kind is Kind.MISCONFIGURED
    assert "s3cret" not in str(fault.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:pass%20word@host/db",
        "postgresql://host/db?password=pass%20word",
        "postgresql://host/db?sslpassword=pass%20word",
    ],
)
def test_passwords_are_taken_out_of_words(url: str) -> None:
    redact = urls.parse(url).redactor
    assert "pass" not in redact("login with pass word failed, pass%20word")
