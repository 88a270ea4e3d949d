"""`mcpd token`, with a daemon that answers and without one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from daemon.cli.token import main
from daemon.host.tokens import PREFIX, TokenFile, digest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Controls
    from tests.unit.cli.daemons import FakeControl

CONFIGURED = "configured-0123456789"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenFile:
    """The tokens of the daemon that would run here."""
    state = tmp_path / "state"
    monkeypatch.setenv("STATE_DIRECTORY", str(state))
    monkeypatch.setenv("MCPD_CONFIG", str(tmp_path / "mcpd.json"))
    monkeypatch.setenv("MCPD_CONTROL", str(tmp_path / "none.sock"))
    return TokenFile(state)


class Daemons(Protocol):
    """A daemon that answers `tokens` with these changes."""

    def __call__(self, **changed: Any) -> FakeControl: ...


@pytest.fixture
def daemon(file: TokenFile, control: Controls) -> Daemons:
    answer: dict[str, Any] = {
        "state": str(file.directory),
        "http": "127.0.0.1:7337",
        "configured": None,
        "profiles": ["default", "reader"],
        "used": {},
        "problem": "",
    }
    return lambda **changed: control({"tokens": {**answer, **changed}})


Capture = pytest.CaptureFixture[str]


def test_the_one_without_a_name_stands_alone_on_the_last_line(file: TokenFile, capsys: Capture) -> None:
    assert main([]) == 0
    shown = capsys.readouterr()
    kept = file.read().default
    assert kept is not None
    assert shown.out == f"{kept.value}\n"
    assert "no daemon answers" in shown.err
    assert kept.value not in shown.err
    assert main(["show"]) == 0
    assert capsys.readouterr().out == shown.out


def test_a_running_daemon_says_where_it_is_and_hears_that_one_was_made(
    file: TokenFile, daemon: Daemons, tmp_path: Path, capsys: Capture
) -> None:
    control = daemon(state=str(tmp_path / "elsewhere"))
    assert main([]) == 0
    assert not file.path.exists()
    value = capsys.readouterr().out.strip()
    assert value.startswith(PREFIX)
    assert value in (tmp_path / "elsewhere" / "tokens.json").read_text()
    assert [method for method, _ in control.asked] == ["tokens", "tokens"]
    assert main([]) == 0
    assert len(control.asked) == 3, "nothing was made, so there is nothing to hear"


def test_a_new_one_is_printed_once_and_only_its_digest_is_kept(
    file: TokenFile, daemon: Daemons, capsys: Capture
) -> None:
    control = daemon()
    assert main(["new", "ci", "--profile", "reader", "--profile", "default", "--profile", "reader"]) == 0
    shown = capsys.readouterr()
    value = shown.out.removesuffix("\n")
    kept = file.read().tokens["ci"]
    assert (kept.sha256, kept.profiles) == (digest(value).hex(), ("reader", "default"))
    assert value not in file.path.read_text()
    assert "not shown again" in shown.err
    assert len(control.asked) == 2
    assert not any(value in str(asked) for asked in control.asked)


@pytest.mark.parametrize(
    ("words", "changed", "said"),
    [
        (["new", "a: b"], {}, "a token's name is 1 to 64 of"),
        (["new", "ci", "--profile", "raeder"], {}, "unknown profile 'raeder': did you mean 'reader'?"),
        (
            ["new", "ci"],
            {"configured": [{"name": "ci", "profiles": None}]},
            "the configuration has a token 'ci'",
        ),
        (["new", "phone"], {}, "mcpd token revoke phone"),
        (["revoke", "fone"], {}, "no token is named 'fone': did you mean 'phone'?"),
        (["revoke", "ci"], {"configured": [{"name": "ci", "profiles": None}]}, "remove it there"),
        (["revoke", "--default"], {"configured": []}, "mcpd keeps none without a name"),
        (["show"], {"configured": [{"name": None, "profiles": None}]}, "mcpd keeps none without a name"),
        (["revoke", "phone"], {"problem": "it is damaged"}, "the daemon cannot read it: it is damaged"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(
    file: TokenFile, daemon: Daemons, capsys: Capture, words: list[str], changed: dict[str, Any], said: str
) -> None:
    file.add("phone", None, 0.0)
    daemon(**changed)
    assert main(words) == 1
    shown = capsys.readouterr()
    assert said in shown.err
    assert PREFIX not in shown.out


def test_a_revoked_one_is_gone_and_the_daemon_hears_of_it(
    file: TokenFile, daemon: Daemons, capsys: Capture
) -> None:
    file.add("phone", None, 0.0)
    old = file.ensure_default(0.0).default
    control = daemon()
    assert main(["revoke", "phone"]) == 0
    assert main(["revoke", "--default"]) == 0
    kept = file.read()
    assert kept.tokens == {}
    assert kept.default not in {None, old}
    assert len(control.asked) == 4
    assert PREFIX not in capsys.readouterr().out, "the new one is for whoever asks for it"


def test_the_list_has_all_of_them_and_no_value(file: TokenFile, daemon: Daemons, capsys: Capture) -> None:
    values = [file.add("phone", None, 86400.0), file.ensure_default(0.0).default]
    daemon(used={"phone": 2 * 86400.0})
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert [line.partition(";")[0] for line in shown.splitlines()] == [
        "(no name): all profiles",
        "phone: all profiles",
    ]
    assert "last used 1970-01-03" in shown
    assert main(["list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tokens"][1] == {
        "name": "phone",
        "profiles": None,
        "console": None,
        "from": "mcpd",
        "since": 86400.0,
        "lastUsed": 172800.0,
    }
    assert not any(str(value) in shown + str(told) for value in values)


def test_the_list_says_what_is_configured_and_leaves_out_what_does_not_count_then(
    file: TokenFile, daemon: Daemons, capsys: Capture
) -> None:
    file.ensure_default(0.0)
    daemon(configured=[{"name": "ci", "profiles": ["reader"]}])
    assert main(["list"]) == 0
    assert capsys.readouterr().out == "ci: reader; configured\n"


def test_an_empty_list_says_so_and_what_the_daemon_cannot_read_is_a_fault(
    file: TokenFile, daemon: Daemons, capsys: Capture
) -> None:
    daemon(problem="it is damaged")
    assert main(["list"]) == 1
    shown = capsys.readouterr()
    assert "There are none" in shown.out
    assert "it is damaged" in shown.err
    assert not file.path.exists()


def test_without_a_daemon_the_configuration_is_read(file: TokenFile, tmp_path: Path, capsys: Capture) -> None:
    config = tmp_path / "mcpd.json"
    tokens = [{"name": "ci", "value": CONFIGURED}]
    config.write_text(json.dumps({"listen": {"http": {"tokens": tokens}}, "profiles": {"reader": {}}}))
    assert main(["list"]) == 0
    assert main(["new", "ann", "--profile", "nobody"]) == 1
    assert main(["new", "ci"]) == 1
    assert main(["new", "ann", "--profile", "reader"]) == 0
    shown = capsys.readouterr()
    assert "ci: all profiles; configured" in shown.out
    assert CONFIGURED not in shown.out + shown.err
    assert list(file.read().tokens) == ["ann"]


def test_a_faulty_configuration_is_told_and_hides_no_token(
    file: TokenFile, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "mcpd.json").write_text(json.dumps({"listen": {"http": {"tokens": "short-secret"}}}))
    assert main([]) == 0
    shown = capsys.readouterr()
    assert "has faults (`mcpd check`)" in shown.err
    assert "short-secret" not in shown.err
    assert shown.out.startswith(PREFIX)


def test_another_state_directory_is_another_daemons(
    file: TokenFile, daemon: Daemons, tmp_path: Path, capsys: Capture
) -> None:
    control = daemon()
    assert main(["new", "ci", "--state-dir", str(tmp_path / "other")]) == 0
    assert not file.path.exists()
    assert len(control.asked) == 1
    assert main(["new", "ci", "--state-dir", str(file.directory)]) == 0
    assert len(control.asked) == 3
    capsys.readouterr()


def test_a_damaged_file_is_a_fault_that_says_what_to_do(
    file: TokenFile, daemon: Daemons, capsys: Capture
) -> None:
    file.ensure_default(0.0)
    file.path.write_text("nonsense")
    daemon()
    for words in ([], ["list"], ["new", "ci"], ["revoke", "ci"], ["revoke", "--default"]):
        assert main(words) == 1
        assert "is damaged: restore it" in capsys.readouterr().err


def test_where_nobody_is_served_over_http_that_is_said(
    file: TokenFile, daemon: Daemons, capsys: Capture
) -> None:
    daemon(http=None)
    assert main([]) == 0
    assert "mcpd run --http" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["new"],
        ["revoke"],
        ["revoke", "ci", "--default"],
        ["list", "ci"],
        ["show", "ci"],
        ["list", "--profile", "reader"],
        ["list", "--console", "read"],
        ["new", "ci", "--console", "everything"],
        ["show", "--json"],
        ["new", "ci", "--default"],
        ["steal"],
    ],
)
def test_wrong_usage_is_told(file: TokenFile, capsys: Capture, words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage: mcpd token" in capsys.readouterr().err
    assert not file.path.exists()


def test_the_help_has_examples(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "mcpd token revoke --default" in capsys.readouterr().out
