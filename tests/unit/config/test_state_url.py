"""A url that no store can use is a fault of the file, found before anything starts, and shows no password."""

from pathlib import Path

import psycopg
import pytest

from daemon.config.state_url import StateUrlError, of_file, parse, passwords, resolve
from daemon.safety.redact import Redactor
from tests.unit.cases import cases, rows_of
from tests.unit.config.reading import faults_in

HERE = Path("/var/lib/mcpd")

GOOD = rows_of(Path(__file__), "good")
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
    found = faults_in({"state": {"url": url}})
    assert all(path == "$.state.url" for path, _ in found)
    return [message for _, message in found]


def test_without_a_url_it_is_a_file_in_the_state_directory() -> None:
    assert messages(None) == []
    place = resolve(None, HERE)
    assert (place.path, place.where, place.shared) == (HERE / "state.db", "/var/lib/mcpd/state.db", False)
    assert resolve(None, Path("state")).path == Path.cwd() / "state" / "state.db"


def test_hosts_may_have_their_ports_with_them() -> None:
    place = parse("postgresql:///mcpd?host=one:5433&host=/run/pg&host=other")
    assert (place.parameters["host"], place.parameters["port"]) == ("one,/run/pg,other", "5433,,")
    parameters = parse("postgresql:///d?host=a&port=1&host=b").parameters
    assert parameters == {"host": "a,b", "port": "1", "dbname": "d"}


def test_a_slash_in_a_user_does_not_make_a_password_part_of_the_place() -> None:
    url = "postgresql://us/er:s3cret@h/mcpd"
    assert url in set(passwords(url))
    with pytest.raises(StateUrlError, match="as %40"):
        parse(url)


@pytest.mark.parametrize("url", GOOD)
def test_a_url_that_can_work_is_right(url: str) -> None:
    assert messages(url) == []
    assert resolve(url, HERE) == parse(url)


@pytest.mark.parametrize("url", [*NO_URL, *BAD_SCHEME, *BAD_FILE, *BAD_LOGIN, *BAD_PORT, *BAD_DRIVER])
def test_what_no_store_can_use_is_one_fault_that_says_what_to_write_and_repeats_no_password(url: str) -> None:
    (message,) = messages(url)
    assert "hunter2" not in message
    assert ": write " in message or ": remove " in message or "four slashes: " in message or "as %40" in message
    with pytest.raises(StateUrlError):
        resolve(url, HERE)


@cases("url", "path")
def test_the_path_of_a_file(url: str, path: str) -> None:
    place = parse(url)
    assert (place.path, place.where, place.shared) == (Path(path), path, False)


def test_a_file_whose_name_is_not_utf8_can_be_shown() -> None:
    assert parse("sqlite:////tmp/%FF/state.db").where == "/tmp/\ufffd/state.db"
    assert of_file(Path("/tmp/\udcff")).where == "/tmp/\ufffd"


@cases("url", "where")
def test_of_a_server_neither_user_nor_password_is_shown(url: str, where: str) -> None:
    place = parse(url)
    assert (place.where, place.shared) == (where, True)
    assert "cret" not in repr(place)


@cases("url")
def test_what_libpq_is_told_reaches_the_same_place(url: str) -> None:
    assert parse(url).parameters == psycopg.conninfo.conninfo_to_dict(url)


@cases("url")
def test_passwords_are_taken_out_of_words(url: str) -> None:
    redact = Redactor(parse(url).secrets)
    assert "pass" not in redact("login with pass word failed")
