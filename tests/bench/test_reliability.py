"""The promises of reliability: that each can be measured, and that table, bench and documentation agree."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.reliability.__main__ import ELSEWHERE, MEASURES, Measure, main, parser, take
from bench.reliability.promise import BY_NAME, PROMISES, Finding, Scale
from bench.reliability.table import BEGIN, END, NOT_YET, Row, read, render, write

ROOT = Path(__file__).parents[2]

PATIENCE = 300.0
"""Seconds for a run that takes five."""

NAMES = [promise.name for promise in PROMISES]

EMPTY = f"before\n\n{BEGIN}\n{END}\n\nafter\n"


def finding(name: str, measured: str = "1 ms", *, kept: bool | None = True) -> Finding:
    return Finding(name=name, measured=measured, kept=kept)


# --- that all of them are there -----------------------------------------------------------------------------


def test_every_promise_has_one_measure() -> None:
    measured = [name for measure in MEASURES for name in measure.names]
    assert sorted([*measured, *ELSEWHERE]) == sorted(NAMES)
    assert [f"R{number}" for number in range(1, 26)] == NAMES


def test_the_documentation_tells_of_the_same_promises() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    table, end, told = rest.partition(END)
    assert begin
    assert end
    rows = re.findall(r"^\| (R\d+) \| (.+?) \| (.+?) \| ", table, re.MULTILINE)
    assert rows == [(promise.name, promise.text, promise.bar) for promise in PROMISES]
    explained = set(re.findall(r"\bR\d+\b", before + told)) | {"R14", "R15"}
    assert explained >= set(NAMES)


def test_every_option_of_the_documentation_exists() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    for words in re.findall(r"^    python -m bench\.reliability (.+?)  ", text, re.MULTILINE):
        parser().parse_args(words.split())


# --- the table ----------------------------------------------------------------------------------------------


def test_a_table_that_is_written_can_be_read_again(tmp_path: Path) -> None:
    doc = tmp_path / "doc.md"
    doc.write_text(EMPTY)
    write(doc, [finding("R1"), finding("R6", "2,000 | more", kept=False)], "run one")
    text = doc.read_text()
    assert text.startswith("before\n\n")
    assert text.endswith("\n\nafter\n")
    rows = read(text)
    assert list(rows) == NAMES
    assert rows["R1"] == Row("1 ms", "yes", "run one")
    assert rows["R6"] == Row("2,000 / more", "**no**", "run one")
    assert rows["R2"] == Row()
    assert render(rows) in text


def test_promises_that_were_not_measured_now_keep_their_line_and_their_run(tmp_path: Path) -> None:
    doc = tmp_path / "doc.md"
    doc.write_text(EMPTY)
    write(doc, [finding("R1", "old"), finding("R25", "24 hours")], "run one")
    write(doc, [finding("R1", "new"), finding("R25", "not in this run", kept=None)], "run two")
    rows = read(doc.read_text())
    assert rows["R1"] == Row("new", "yes", "run two")
    assert rows["R25"] == Row("24 hours", "yes", "run one")
    write(doc, [finding("R25", "48 hours")], "run three")
    assert "run one" not in doc.read_text()
    assert NOT_YET in doc.read_text()


# --- measuring ----------------------------------------------------------------------------------------------


def test_a_measure_that_fails_is_a_promise_that_is_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(_scale: Scale) -> Iterator[Finding]:
        yield finding("R1")
        raise OSError("the disk | is full")

    told = list(take(Measure(("R1", "R2", "R8"), fails), Scale(), ["R1", "R2"]))
    assert told == [finding("R1"), finding("R2", "measuring failed: OSError: the disk / is full", kept=False)]
    assert "Traceback" in capsys.readouterr().err


# --- the real thing, on a few of everything ------------------------------------------------------------------


@pytest.mark.nightly
def test_a_run_measures_prints_and_writes(tmp_path: Path) -> None:
    doc = tmp_path / "doc.md"
    doc.write_text(EMPTY)
    wanted = ["R9", "R20", "R25"]
    words = ["--share", "0.001", "--only", ",".join(wanted), "--write", "--doc", str(doc)]
    command = [sys.executable, "-m", "bench.reliability", *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "measuring failed" not in ran.stdout, ran.stderr
    # How quick this machine is now, is not asked here.
    assert ran.returncode == ("NOT KEPT" in ran.stdout), ran.stderr
    rows = read(doc.read_text())
    assert {name for name, row in rows.items() if row.run} == {"R9", "R20"}
    assert rows["R20"].kept == "yes"
    assert "0 of 1,000 answers misrouted" in rows["R20"].measured
    for name in wanted:
        assert f"{name:4}" in ran.stdout
        assert BY_NAME[name].bar in ran.stdout
        assert f"measured: {rows[name].measured}\n" in ran.stdout
    assert rows["R9"].run.startswith("`python -m bench.reliability --share 0.001 --only R9,R20,R25 --write")
    assert "CPUs" in rows["R9"].run


@pytest.mark.nightly
def test_a_soak_of_seconds_sees_every_call_answered(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--soak", "0.0005", "--seed", "1"])
    said = capsys.readouterr().out
    assert re.search(r"R25 .*[1-9][\d,]* calls, \d+ faults, \d+ restarts: 0 wrong", said, re.DOTALL), said
