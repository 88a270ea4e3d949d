"""`mcpd add` of what a registry or a bundle offers, with offers made by hand: shown, asked about, written."""

import json
import sys
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemon.cli.adding_offers import found
from daemon.cli.table import implementation
from daemon.sandbox import policy
from daemon.setup.drafts import read_present
from daemon.sources.offers import ServerOffer
from tests.unit.cases import cases, rows_of
from tests.unit.cli.conftest import Captured
from tests.unit.cli.users import Terminal
from tests.unit.sources.packing import manifest, packed

OFFERS = {name: msgspec.convert(offer, ServerOffer) for name, offer in rows_of(Path(__file__), "an_offer")}


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """A user without a daemon who gives `mcpd add registry:x` more words."""

    words: list[str]
    offer: str = "thing"
    typed: list[str] | None = None
    """Lines at a terminal; None: there is none."""
    secrets: list[str] = []
    """Lines that are typed unseen."""
    sandboxes: bool = True
    status: int = 0
    says: list[str] = []
    entry: dict[str, Any] | None = None
    """Some of the entry that is written."""
    env: str | None = None


@cases("given")
def test_what_is_offered_is_shown_asked_about_and_written(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    case, config, undone = msgspec.convert(given, Case), tmp_path / "mcpd.json", list[str]()

    def offered(_options: object, _present: object, undo: Any) -> ServerOffer:
        undo.callback(undone.append, case.offer)
        return OFFERS[case.offer]

    def hidden(prompt: str) -> str:
        sys.stderr.write(f"{prompt}(hidden)\n")
        return case.secrets.pop(0)

    lines = None if case.typed is None else Terminal("".join(f"{line}\n" for line in case.typed))
    missing = None if case.sandboxes else policy.unavailable("no bwrap", problem="missing")
    monkeypatch.setattr(sys, "stdin", lines)
    monkeypatch.setattr("daemon.cli.adding_offers.found", offered)
    monkeypatch.setattr("daemon.cli.terminal.getpass", hidden)
    for module in ("cli.adding_offers", "setup.drafts"):
        monkeypatch.setattr(f"daemon.{module}.launch.trial", lambda _: missing)
    monkeypatch.setenv("SHELL_TOKEN", "t-83hd82hd8")
    try:
        status = implementation("add").main([*case.words, "registry:x", "--config", str(config), "--no-reload"])
    except SystemExit as left:
        status = int(str(left.code))
    except KeyboardInterrupt:
        status = 130
    said = "".join(capsys.readouterr())
    assert status == case.status, said
    assert not [each for each in case.says if each not in said and each not in " ".join(said.split())], said
    assert "83hd" not in said
    entry = next(iter(json.loads(config.read_text())["mcpServers"].values())) if config.exists() else None
    assert (entry is None) == (case.entry is None) == (undone == [case.offer])
    assert {key: (entry or {}).get(key) for key in case.entry or ()} == (case.entry or {})
    if case.env is not None:
        assert config.with_name("env").read_text() == case.env


def test_a_version_or_offline_without_a_registry_is_refused_and_what_to_write_is_told(
    tmp_path: Path, capsys: Captured
) -> None:
    config = tmp_path / "mcpd.json"
    for option in (("--version", "1.2.3"), ("--offline",)):
        for line in ("npm:thing", "x https://a.example", "a.mcpb", "x -- run"):
            with pytest.raises(SystemExit, match="2"):
                implementation("add").main([*option, "--config", str(config), "--no-reload", *line.split()])
            said = " ".join(capsys.readouterr().err.split())
            assert "are for registry:SERVER; for a package, write npm:PACKAGE@V" in said
    assert not config.exists()


def test_what_was_unpacked_stays_where_another_server_was_added_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file, config = tmp_path / "a.mcpb", tmp_path / "mcpd.json"
    file.write_bytes(packed({"manifest.json": json.dumps(manifest()), "server/index.js": ""}))
    options = Namespace(words=[str(file)], rest=[], version=None, offline=False, shown=None, dry_run=False)
    for text in ("{}", None):
        with ExitStack() as undo:
            offer = found(options, read_present(config), undo)
            assert offer is not None
            config.write_text(text or json.dumps({"mcpServers": {"a": {"cwd": offer.origin.bundle}}}))
        assert Path(str(offer.origin.bundle)).is_dir() == (text is None)
        config.unlink()
