"""A url that no store can use is a fault of the file, found before anything starts, and shows no password."""

from __future__ import annotations

import pytest

from daemon.config.model import State
from daemon.config.state_rules import state_faults
from daemon.store import urls
from daemon.store.faults import StoreFault
from tests.config.reading import faults_in

GOOD = [
    "sqlite:////var/lib/mcpd/state.db",
    "sqlite+pysqlite:////s.db",
    "sqlite:////with%20space/s.db",
    "postgresql://h/d",
    "postgresql+psycopg://u:secret@h:5432/d",
    "postgresql://u:se%40cret@[::1]:1/d?sslmode=require",
    "postgresql:///d?host=/run/postgresql",
    "postgresql://",
]
NO_URL = ["", "state.db", "/var/lib/mcpd/state.db", "hunter2", "://h", "sqlite:/x"]
BAD_SCHEME = ["mysql://u:hunter2@h/d", "postgres://u:hunter2@h/d", "SQLite:////x.db", "file:///x.db"]
BAD_FILE = ["sqlite://", "sqlite:///s.db", "sqlite:///:memory:", "sqlite://h/s.db", "sqlite://u:hunter2@/s.db"]
BAD_FILE += ["sqlite:////", "sqlite:////var/lib/", "sqlite:////s.db?mode=ro", "sqlite+aiosqlite:////s.db"]
BAD_LOGIN = ["postgresql://u:x@hunter2@h/d", "postgresql://u:x/hunter2@h/d", "postgresql://u:x#hunter2@h/d"]
BAD_LOGIN += ["postgresql://u:x?hunter2@h/d"]
BAD_PORT = ["postgresql://h:/d", "postgresql://h:99999/d", "postgresql://h:0/d", "postgresql://h:\u0665/d"]
BAD_PORT += ["postgresql://u:hunter2@h:x/d", "postgresql://a:1,b:2/d"]
BAD_DRIVER = ["postgresql+asyncpg://u:hunter2@h/d", "postgresql+psycopg2://h/d"]


def messages(url: str | None) -> list[str]:
    return [fault.message for fault in state_faults(State(url=url), "$.state")]


def test_no_url_is_right() -> None:
    assert messages(None) == []


@pytest.mark.parametrize("url", GOOD)
def test_a_url_that_the_store_takes_is_right(url: str) -> None:
    assert messages(url) == []
    urls.parse(url)


@pytest.mark.parametrize("url", [*NO_URL, *BAD_SCHEME, *BAD_FILE, *BAD_LOGIN, *BAD_PORT, *BAD_DRIVER])
def test_what_no_store_can_use_is_one_fault_that_says_what_to_write_and_repeats_no_password(url: str) -> None:
    (message,) = messages(url)
    assert "hunter2" not in message
    assert ": write " in message or ": remove " in message or "four slashes: " in message or "as %40" in message


@pytest.mark.parametrize(
    "url", [*NO_URL, *BAD_SCHEME, *BAD_DRIVER, "sqlite:///s.db", "sqlite:////s.db?mode=ro"]
)
def test_the_store_itself_refuses_the_same(url: str) -> None:
    with pytest.raises(StoreFault):
        urls.parse(url)


def test_the_fault_stands_at_its_place_in_the_file() -> None:
    config = {"mcpServers": {}, "state": {"url": "state.db"}}
    assert [path for path, _ in faults_in(config)] == ["$.state.url"]
