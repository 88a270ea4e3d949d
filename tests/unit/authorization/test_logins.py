"""Logins in files: private, for one url each, held by one at a time, not lost by what is wrong with them."""

import os
import stat
from pathlib import Path

import msgspec
import pytest

from daemon.authorization.logins import MAX_BYTES, FileLogins, Login, LoginsTrouble, ServerLogins

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


def test_a_login_is_kept_where_only_this_user_can_read_it(logins: FileLogins) -> None:
    logins.write("notion", LOGIN)
    assert logins.read("notion", URL) == LOGIN
    assert stat.S_IMODE(kept(logins).stat().st_mode) == 0o600
    assert stat.S_IMODE(kept(logins).parent.stat().st_mode) == 0o700


def test_a_login_counts_for_the_url_that_it_was_made_for_and_no_other(logins: FileLogins) -> None:
    logins.write("notion", LOGIN)
    assert logins.read("notion", "https://elsewhere.example/mcp") is None
    assert logins.read("linear", URL) is None


def test_a_login_that_was_forgotten_is_gone_and_may_be_forgotten_again(logins: FileLogins) -> None:
    logins.write("notion", LOGIN)
    logins.remove("notion")
    logins.remove("notion")
    assert logins.read("notion", URL) is None


def test_nothing_secret_is_in_what_a_log_would_show() -> None:
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


def test_a_login_that_others_could_read_is_refused(logins: FileLogins) -> None:
    logins.write("notion", LOGIN)
    kept(logins).chmod(0o640)
    with pytest.raises(LoginsTrouble, match="chmod 600"):
        logins.read("notion", URL)


def test_a_login_of_somebody_else_is_refused(logins: FileLogins, monkeypatch: pytest.MonkeyPatch) -> None:
    logins.write("notion", LOGIN)
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
    with logins.locked("notion"):
        logins.write("notion", LOGIN)


def test_what_goes_wrong_while_a_login_is_held_is_not_taken_for_a_fault_of_the_lock(logins: FileLogins) -> None:
    with pytest.raises(TimeoutError, match="mine"), logins.locked("notion"):
        raise TimeoutError("mine")


def test_a_state_directory_that_is_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(LoginsTrouble, match="cannot store"):
        FileLogins(tmp_path / "state").write("notion", LOGIN)
    with (
        pytest.raises(LoginsTrouble, match="cannot be locked"),
        FileLogins(tmp_path / "state").locked("notion"),
    ):
        pass
