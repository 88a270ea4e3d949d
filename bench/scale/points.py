"""What was measured, read from where it is kept: the tables of a document, or the JSON of `bench.calls`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import attrs

from bench.calls import report

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CALLS, DELAYS, VALUES = "Calls", "What others wait for", "Memory, start and rest"
"""The titles of the tables of `docs/performance.md`."""


class Unreadable(Exception):
    """A number that the model needs is not where it should be."""


@attrs.frozen(kw_only=True)
class Point:
    """One way of calling, as measured."""

    cpu_us: float | None
    """CPU of the daemon for a call."""
    rate: float
    """Calls a second."""
    p50_us: float | None


@attrs.frozen(kw_only=True)
class Points:
    """What the model is fed with."""

    head: str
    """The run: command, date, machine."""
    calls: Mapping[tuple[str, str], Point]
    """By case and target."""
    added: Mapping[str, float]
    """Milliseconds that others wait for something, by what it is."""
    values: Mapping[str, float]
    """Memory, start and rest: by the words of the table, in its units."""

    def call(self, case: str, target: str) -> Point:
        """A row.

        Raises:
            Unreadable: it was not measured.
        """
        found = self.calls.get((case, target))
        if found is None:
            raise Unreadable(f"the numbers have no row '{case}' of '{target}': run bench.calls with `calls`")
        return found

    def cpu(self, case: str, target: str) -> float:
        """Microseconds of CPU a call.

        Raises:
            Unreadable: not measured.
        """
        found = self.call(case, target).cpu_us
        if found is None:
            raise Unreadable(f"the row '{case}' of '{target}' says nothing of CPU")
        return found

    def wait(self, kind: str) -> float:
        """Milliseconds that others wait; noise below nothing is nothing.

        Raises:
            Unreadable: not measured.
        """
        if kind not in self.added:
            raise Unreadable(
                f"the numbers do not say what others wait for {kind}: run bench.calls with `delays`"
            )
        return max(0.0, self.added[kind])

    def value(self, beginning: str) -> float:
        """The value whose name begins so.

        Raises:
            Unreadable: not measured.
        """
        for name, value in self.values.items():
            if name.startswith(beginning):
                return value
        raise Unreadable(f"the numbers have no '{beginning}': run bench.calls with `memory,rest`")


def from_json(path: Path) -> Points:
    """What `bench.calls --json` wrote.

    Raises:
        Unreadable: it is something else.
    """
    try:
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Points(
            head=f"`{read['command']}`, {read['date']}. {read['machine']}.",
            calls={
                (row["case"], row["target"]): Point(
                    cpu_us=row["cpu_us"], rate=row["rate"], p50_us=row["p50_us"]
                )
                for row in read["calls"]
            },
            added={delay["kind"]: delay["added"] for delay in read["delays"]},
            values=dict(_values(read["memory"], read["rest"])),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"{path} is no result of `bench.calls --json`: {error!r}") from None


def _values(memory: dict[str, Any] | None, rest: dict[str, Any] | None) -> Iterator[tuple[str, float]]:
    if memory is not None:
        yield f"an idle client, of {memory['clients']:,}", memory["per_client"]
    if rest is not None:
        yield f"READY: {rest['servers']} servers, {rest['tools']:,} tools in the store", rest["ready_ms"]
        yield "daemon at rest: memory", rest["rss_kb"] / report.KIB
        yield "daemon at rest: CPU", rest["idle_cpu"]
        yield "mcpd connect: memory of its own", rest["connect_own_kb"] / report.KIB


def from_document(path: Path) -> Points:
    """The tables that `bench.calls --write` has put into a document.

    Raises:
        Unreadable: it has none.
    """
    part = between(path, report.BEGIN, report.END)
    found = {title: list(rows(part, title)) for title in (CALLS, DELAYS, VALUES)}
    return Points(
        head=next((line for line in part.splitlines() if line.startswith("`")), "?"),
        calls={
            (row["case"], row["target"]): Point(
                cpu_us=number(row["CPU us/call"]),
                rate=number(row["calls/s"]) or 0,
                p50_us=number(row["p50 us"]),
            )
            for row in found[CALLS]
        },
        added={row["meanwhile"]: number(row["added ms"]) or 0 for row in found[DELAYS]},
        values={row["what"]: number(row["measured"]) or 0 for row in found[VALUES]},
    )


def between(path: Path, begin: str, end: str) -> str:
    """What stands between two marks of a document.

    Raises:
        Unreadable: there is no such document, or no marks.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from None
    _, found, rest = text.partition(begin)
    part, ended, _ = rest.partition(end)
    if not found or not ended:
        raise Unreadable(f"{path} has no numbers: {begin} ... {end}")
    return part


def rows(text: str, title: str) -> Iterator[dict[str, str]]:
    """The rows of the table under a title, by the heads of its columns; of equal heads the first one counts."""
    _, _, after = text.partition(f"### {title}\n")
    lines = [line for line in after.split("\n### ")[0].splitlines() if line.startswith("|")]
    if not lines:
        return
    heads = _cells(lines[0])
    for line in lines[2:]:
        yield dict(zip(reversed(heads), reversed(_cells(line)), strict=True))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def number(cell: str) -> float | None:
    """The number that a cell begins with; None for a dash."""
    found = re.match(r"-?[\d,]*\.?\d+", cell)
    return None if found is None else float(found[0].replace(",", ""))
