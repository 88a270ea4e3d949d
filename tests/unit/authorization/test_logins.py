"""Logins in files, what servers ask for them, and what is read of `WWW-Authenticate`."""

import os
import stat
from pathlib import Path

import msgspec
import pytest

from daemon.authorization.logins import (
    MAX_BYTES,
    MAX_HEADER,
    MAX_SCOPE,
    Challenge,
    FileLogins,
    Login,
    LoginsTrouble,
    ServerLogins,
    bearer_challenge,
    login_url,
    union,
)
from daemon.config.config_model import Server, TransportType
from tests.unit.cases import cases

URL = "https://mcp.example/mcp"
LOGIN = Login(
    url=URL,
    issuer="https://login.example",
    token_endpoint="https://login.example/token",
    client_id="client",
    access_token="canary-access",
    refresh_token="canary-refresh",
    client_secret="canary-secret",
    expires_at=1000.0,
)


@pytest.fixture
def logins(tmp_path: Path) -> FileLogins:
    return FileLogins(tmp_path / "state", patience=0.0)


def kept(logins: FileLogins) -> Path:
    return logins.state / "logins" / "notion.json"


def test_what_a_server_may_repeat_of_a_login_is_hidden(logins: FileLogins) -> None:
    hidden = dict[str, list[str]]()
    ServerLogins(logins, lambda server, values: hidden.update({server: [*values]})).sent("notion", LOGIN)
    assert hidden == {"notion": ["canary-access", "canary-refresh", "canary-secret"]}


def test_a_login_is_kept_for_its_user_and_its_url_alone_until_it_is_forgotten(logins: FileLogins) -> None:
    logins.write("notion", LOGIN)
    assert logins.read("notion", URL) == LOGIN
    assert [stat.S_IMODE(each.stat().st_mode) for each in (kept(logins), kept(logins).parent)] == [0o600, 0o700]
    assert logins.read("notion", "https://elsewhere.example/mcp") is None
    assert logins.read("linear", URL) is None
    for _ in range(2):
        logins.remove("notion")
        assert logins.read("notion", URL) is None
    assert "canary" not in repr(LOGIN)


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"canary": 1}', b"\xff", b'"canary"', b"[" * MAX_BYTES, b" " * (MAX_BYTES + 9)]
)
def test_a_damaged_login_says_what_to_do_and_is_not_touched(logins: FileLogins, content: bytes) -> None:
    logins.write("notion", LOGIN)
    kept(logins).write_bytes(content)
    with pytest.raises(LoginsTrouble, match="is damaged: `mcpd login notion`") as caught:
        logins.read("notion", URL)
    assert "canary" not in str(caught.value)
    assert kept(logins).read_bytes() == content
    logins.write("notion", LOGIN)
    assert logins.read("notion", URL) == LOGIN


def test_a_login_that_others_could_read_or_own_is_refused(
    logins: FileLogins, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins.write("notion", LOGIN)
    kept(logins).chmod(0o640)
    with pytest.raises(LoginsTrouble, match="chmod 600"):
        logins.read("notion", URL)
    kept(logins).chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: 64_322)
    with pytest.raises(LoginsTrouble, match="not to this user"):
        logins.read("notion", URL)


def test_neither_a_link_nor_a_directory_is_taken_for_a_login(logins: FileLogins, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(msgspec.json.encode(LOGIN))
    kept(logins).parent.mkdir(parents=True)
    kept(logins).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LoginsTrouble, match="cannot be read"):
        logins.read("notion", URL)
    kept(logins).unlink()
    kept(logins).mkdir()
    with pytest.raises(LoginsTrouble, match=r"is no file|cannot be read"):
        logins.read("notion", URL)
    with pytest.raises(LoginsTrouble, match="cannot store"):
        logins.write("notion", LOGIN)


def test_a_login_is_held_by_one_at_a_time_and_another_is_not_concerned(logins: FileLogins) -> None:
    refused = pytest.raises(LoginsTrouble, match="another mcpd has been changing")
    with logins.locked("notion"), logins.locked("linear"), refused, logins.locked("notion"):
        pass
    # An error of the holder's own is no fault of the lock.
    with pytest.raises(TimeoutError, match="mine"), logins.locked("notion"):
        raise TimeoutError("mine")


def test_a_state_directory_that_is_a_file_says_so(logins: FileLogins) -> None:
    logins.state.write_text("")
    with pytest.raises(LoginsTrouble, match="cannot store"):
        logins.write("notion", LOGIN)
    with pytest.raises(LoginsTrouble, match="cannot be locked"), logins.locked("notion"):
        pass


@cases("header", "challenge")
def test_the_first_bearer_challenge_counts(header: str, challenge: dict[str, str] | None) -> None:
    assert bearer_challenge(header) == (None if challenge is None else Challenge(**challenge))


def test_a_scope_that_has_another_form_is_not_asked_for() -> None:
    for scope in ("a\tb", "a  b", "ä", "a\x1b[2J", "x" * (MAX_SCOPE + 1), r"a\"b"):
        assert bearer_challenge(f'Bearer scope="{scope}"') == Challenge(), scope


def test_more_than_a_header_may_hold_is_not_read() -> None:
    assert bearer_challenge("Bearer " + "a=b," * MAX_HEADER + "scope=late") == Challenge()
    assert bearer_challenge("," * 10 * MAX_HEADER) is None
    assert bearer_challenge('Bearer a="' + "\\" * 10 * MAX_HEADER) == Challenge()


def test_scopes_are_joined_in_order_and_once_each() -> None:
    assert union("a b", None, "", "b c") == "a b c"
    assert union(None, "") is None


def test_the_next_login_asks_for_what_is_granted_and_for_everything_wanted_since() -> None:
    logins = ServerLogins(FileLogins(Path("/nowhere")))
    assert logins.wanted("one", "read") is None
    logins.want("one", "write")
    logins.want("one", "admin write")
    assert logins.wanted("one", "read") == "read write admin"
    assert logins.wanted("two") is None
    logins.satisfied("one")
    assert logins.wanted("one", "read") is None


@cases("url", "counts_for")
def test_a_login_is_made_over_http_whatever_the_server_speaks(url: str, counts_for: str) -> None:
    assert login_url(Server(name="s", type=TransportType.HTTP, url=url)) == counts_for
