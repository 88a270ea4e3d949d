"""Makes the two files of daemon/search/data/ from public data: see the README there.

    python -m bench.distil DATA_DIR

DATA_DIR holds `toolgym_catalog/tools.jsonl.gz` and `thesaurus.json` (stem to [[close stem, cosine], ...]).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from bench.retrieval import rows_of
from daemon.search.text import terms

TARGET = Path(__file__).parent.parent / "daemon" / "search" / "data"

RARE = 3
"""Terms that fewer tools have are as good as unknown."""

CLOSE, MOST = 0.5, 4
"""How close a neighbour must be, and how many of them a stem keeps."""


def frequencies(data: Path) -> str:
    """How many public tools have each term, by name, server or description."""
    rows = rows_of(data / "toolgym_catalog" / "tools.jsonl.gz")
    counts: Counter[str] = Counter()
    for row in rows:
        fields = (row["name"], row.get("description") or "", row.get("server") or "")
        counts.update({term for text in fields for term in terms(text)})
    kept = sorted((term, count) for term, count in counts.items() if count >= RARE and term.isascii())
    return "\n".join([str(len(rows)), *(f"{term} {count}" for term, count in kept)]) + "\n"


def neighbours(data: Path) -> str:
    """The closest stems of each stem, with how close they are in percent."""
    lines = []
    for term, pairs in sorted(json.loads((data / "thesaurus.json").read_text()).items()):
        near = [(other, cosine) for other, cosine in pairs if cosine >= CLOSE and _plain(other)][:MOST]
        if near and _plain(term):
            lines.append(" ".join([term, *(f"{other}:{round(cosine * 100)}" for other, cosine in near)]))
    return "\n".join(lines) + "\n"


def _plain(term: str) -> bool:
    return term.isascii() and " " not in term and ":" not in term


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(prog="python -m bench.distil", description=__doc__)
    parser.add_argument("data", metavar="DATA_DIR", type=Path, help="the folder with the public data")
    data = parser.parse_args().data
    (TARGET / "frequencies.txt").write_text(frequencies(data), encoding="utf-8")
    (TARGET / "neighbours.txt").write_text(neighbours(data), encoding="utf-8")


if __name__ == "__main__":
    main()
