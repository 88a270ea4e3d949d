"""The table of promises: for a terminal, as JSON, and for the documentation."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import attrs

from bench.reliability.promise import BY_NAME, PROMISES, Finding
from bench.tables import machine, place_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

BEGIN, END = "<!-- bench.reliability begins -->", "<!-- bench.reliability ends -->"
"""The marks around the table in the documentation."""

HEAD = "| | promise | bar | measured | kept | run |\n|---|---|---|---|---|---|"

NOT_YET = "not measured yet"


@attrs.frozen
class Row:
    """A promise's row in the documentation."""

    measured: str = NOT_YET
    kept: str = "-"
    run: str = ""
    """The run of the measurement, in words; empty for none."""


def word(kept: bool | None) -> str:  # noqa: FBT001 - it is what is put into words
    """Yes, no or a dash."""
    return {True: "yes", False: "**no**", None: "-"}[kept]


def shown(finding: Finding) -> str:
    """One line for a terminal."""
    promise = BY_NAME[finding.name]
    kept = {True: "kept", False: "NOT KEPT", None: "-"}[finding.kept]
    return f"{finding.name:4}{kept:9}{promise.text}\n     bar: {promise.bar}\n     measured: {finding.measured}"


def load() -> str:
    """The load average of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def run_of(command: str, load_before: str) -> str:
    """A run in words: command, time and machine."""
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"`{command}`, {when}; {machine()}; load average {load_before} before, {load()} after"


def write(path: Path, findings: Iterable[Finding], run: str) -> None:
    """Write findings into the documentation; promises that were not measured keep their lines.

    Raises:
        ValueError: the file has no place for the table.
    """
    before, table, after = place_in(path, BEGIN, END)
    rows = read(table)
    for finding in findings:
        if finding.kept is not None or rows.get(finding.name, Row()).measured == NOT_YET:
            mark = run if finding.kept is not None else ""
            rows[finding.name] = Row(finding.measured, word(finding.kept), mark)
    path.write_text(f"{before}{BEGIN}\n{render(rows)}\n{END}{after}", encoding="utf-8")


def read(table: str) -> dict[str, Row]:
    """The rows of a table that `render` made."""
    runs = dict(re.findall(r"^(\d+)\. (.+)$", table, re.MULTILINE))
    found = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if re.fullmatch(r"R\d+", cells[0]):
            _name, _text, _bar, measured, kept, number = cells
            found[cells[0]] = Row(measured, kept, runs.get(number, ""))
    return found


def render(rows: Mapping[str, Row]) -> str:
    """The table in Markdown, followed by the runs of its rows."""
    runs = list(dict.fromkeys(row.run for row in rows.values() if row.run))
    lines = [HEAD]
    for promise in PROMISES:
        row = rows.get(promise.name, Row())
        number = str(runs.index(row.run) + 1) if row.run else "-"
        cells = (promise.name, promise.text, promise.bar, row.measured, row.kept, number)
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    told = [f"{number}. {run}" for number, run in enumerate(runs, start=1)]
    return "\n".join([*lines, "", *told]).rstrip() + "\n"
