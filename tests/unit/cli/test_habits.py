"""Words, options and terminals that people have from elsewhere: what `mcpd` makes of them."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon import cli
from daemon.cli import EX_USAGE, overview
from daemon.cli.completing import parser_of
from daemon.cli.table import ENDING, help_table, purposes
from tests.printing import err_of, out_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured

TABLE = help_table()
COMMANDS = [*purposes(TABLE)]
ENDS = re.compile(
    r"\b(stop|remove|end|forget|cancel|delete|take|unload|switch a server, or one of its tools, off)\b"
)
"""How purposes begin of commands that end or remove something."""

TO_COPY = re.compile(r'^ +(\$ )?mcpd |"command": "mcpd"')


def typed(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of a whole command line."""
    monkeypatch.setattr(sys, "argv", ["mcpd", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(str(ended.value.code))


def words_of(table: str) -> dict[str, str]:
    """Each word of a table, with the command line that it stands for."""
    return {word: line for line, words in TABLE[table].items() for word in words.split()}


# --- other tools' words --------------------------------------------------------------------------------------


def test_a_word_stands_for_one_command_and_only_a_plain_one_for_what_ends_something() -> None:
    tables = [words_of(table) for table in ("aliases", "synonyms")]
    assert not {*tables[0]} & {*tables[1]}
    assert not {*tables[0], *tables[1]} & {*COMMANDS, "help", "run"}
    assert {line.split()[0] for table in tables for line in table.values()} <= {*COMMANDS}
    assert {word for word, line in tables[0].items() if line.split()[0] in ENDING} == {"rm"}
    ends = {name for name, (purpose, _) in purposes(TABLE).items() if ENDS.match(purpose)}
    assert ends <= ENDING <= {*COMMANDS}


def test_a_plain_word_is_the_command(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    ran = list[list[str]]()
    monkeypatch.setattr(cli, "implementation", lambda name: Ran(name, ran))
    for word, line in words_of("aliases").items():
        command, *options = line.split()
        assert typed(word, "git", "--json", monkeypatch=monkeypatch) == 0
        assert ran.pop() == [command, "git", "--json", *options]
    assert (ran, *capsys.readouterr()) == ([], "", "")


class Ran:
    """Stands for a command: notes its name and words."""

    def __init__(self, name: str, ran: list[list[str]]) -> None:
        self.name, self.ran = name, ran

    def main(self, argv: list[str]) -> int:
        self.ran.append([self.name, *argv])
        return 0


def test_any_other_word_is_answered_with_a_line_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(cli, "implementation", lambda name: pytest.fail(f"{name} ran"))
    for word, line in words_of("synonyms").items():
        assert typed(word, "git", monkeypatch=monkeypatch) == EX_USAGE
        purpose = purposes(TABLE)[line.split(maxsplit=1)[0]][0]
        said = f"mcpd: unknown command {word!r}: `mcpd {line}`, perhaps: {purpose}\n"
        assert capsys.readouterr().err == said


@cases("words", "output")
def test_help_and_the_version_know_the_words_of_other_tools(
    words: str, output: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert re.match(output, out_of(capsys, typed(*words.split(), monkeypatch=monkeypatch)))


# --- typos ---------------------------------------------------------------------------------------------------


def typos(word: str) -> Iterator[str]:
    """The word with a letter less, doubled, replaced, or exchanged with the next; and its beginnings."""
    for at, letter in enumerate(word):
        before, after = word[:at], word[at + 1 :]
        yield before + after
        yield before + letter + letter + after
        yield from (before + other + after for other in "at")
        yield before + after[:1] + letter + after[1:]
        yield before


def test_no_typo_is_answered_with_a_command_that_ends_something() -> None:
    every = {typo for word in (*COMMANDS, *words_of("aliases"), *words_of("synonyms")) for typo in typos(word)}
    unknown = every - {*COMMANDS, *words_of("aliases"), *words_of("synonyms"), ""}
    hints = {typo: cli._unknown(typo) for typo in unknown}
    meant = {
        typo: found[1]
        for typo, hint in hints.items()
        if (found := re.search(r"did you mean `mcpd (.+)`\?", hint))
    }
    assert len(meant) > len(unknown) / 2
    assert not {typo: command for typo, command in meant.items() if command in ENDING}


# --- JSON ----------------------------------------------------------------------------------------------------


def test_other_names_of_options_are_taken(tmp_path: Path, capsys: Captured) -> None:
    for command in COMMANDS:
        names = {name for action in parser_of(command)._actions for name in action.option_strings}
        assert ("--json" in names) is ("-o" in names), command
    (tmp_path / "mcpd.json").write_text('{"mcpServers": {}}')
    check = cli.implementation("check")
    assert json.loads(out_of(capsys, check.main([str(tmp_path / "mcpd.json"), "-o", "json"])))["ok"]
    with pytest.raises(SystemExit):
        check.main(["-o", "yaml"])
    assert "argument -o: invalid choice: 'yaml'" in capsys.readouterr().err
    assert parser_of("remove").parse_args(["git", "--yes"]).servers == ["git"]


# --- wrong usage ---------------------------------------------------------------------------------------------


def test_wrong_usage_is_a_line_about_the_fault_and_one_of_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            parser_of(command).error("no such thing")
        usage, fault = capsys.readouterr().err.splitlines()
        assert usage.startswith(f"usage: mcpd {command} [OPTIONS]")
        assert fault == f"mcpd {command}: error: no such thing"
    # What may be left out is not asked for.
    assert err_of(capsys, typed("call", monkeypatch=monkeypatch), EX_USAGE).endswith("required: SERVER/TOOL\n")


# --- help ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_help_fits_the_terminal_but_for_lines_to_copy(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    texts = {command: parser_of(command).format_help() for command in COMMANDS}
    lines = [line for text in (overview(), *texts.values()) for line in text.splitlines()]
    assert max(len(line) for line in lines) > 50
    assert [line for line in lines if len(line) > columns and not TO_COPY.search(line)] == []
