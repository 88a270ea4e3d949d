"""Measures the quality and speed of the daemon's search on public sets of queries.

    python -m bench.search DATA_DIR [--set livemcp_step] [--semantic [MODEL]]

DATA_DIR has a folder for each set: `tools.jsonl` (id, server, name, description, inputSchema and
server_description) and `queries.jsonl` (id, text, grades, and slots: lists of tool ids, of which any answers a
part of the query). If `toolgym_catalog/tools.jsonl.gz` exists, it is added to one set to measure 10,000 tools.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.retrieval import DEPTH, MEASURES, Row, Tools, catalogue, measure, rows_of
from bench.unserved import UNSERVED
from daemon.search.index import Index
from daemon.search.vectors import SemanticUnavailable, Vectors, open_encoder

if TYPE_CHECKING:
    from collections.abc import Sequence

SETS = ("livemcp_step", "livemcp_agent", "livemcp_task", "metatool_single", "stabletoolbench")
DISTRACTORS = Path("toolgym_catalog") / "tools.jsonl.gz"

GOAL = (0.64, 0.58)
"""recall@5 and nDCG@10, mean of the livemcp sets: others' results with a BM25F recipe on the same data."""

MANY = 1_397
"""Tools of forty-four real servers: in a set as large, needs that no tool serves are searched for, too."""

SMALL_MS, LARGE_MS = 1.0, 8.0
"""Bars for the medians, at about 500 and about 10,000 tools, without vectors."""


class Outcome(NamedTuple):
    """The results of one set."""

    scores: dict[str, float]
    milliseconds: list[float]
    tools: int
    unserved: int
    """The count of unserved needs for which the search lists something."""


def main() -> int:
    """Print the tables. Returns 0 if goals are met, 1 if not, 2 for wrong usage."""
    options = _parser().parse_args()
    names = options.set or [name for name in SETS if (options.data / name).is_dir()]
    if not names:
        _parser().error(f"{options.data} holds none of {', '.join(SETS)}")
    try:
        encoder = None if options.semantic is None else open_encoder(options.semantic or None)
    except SemanticUnavailable as error:
        _parser().error(str(error))
    outcomes = {name: _run(options.data / name, encoder) for name in names}
    _print_quality(outcomes)
    met = _print_reference(outcomes)
    slow = _print_scale(options.data, names, encoder)
    if encoder is None:
        small = [
            ms for name, each in outcomes.items() if name.startswith("livemcp") for ms in each.milliseconds
        ]
        met &= _goal("median at about 500 tools", statistics.median(small), SMALL_MS) if small else True
        met &= _goal("median at about 10,000 tools", slow, LARGE_MS) if slow else True
    return 0 if met else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", metavar="DATA_DIR", type=Path, help="the folder with the sets")
    parser.add_argument(
        "--set", metavar="NAME", action="append", choices=SETS, help="only this set; repeatable"
    )
    parser.add_argument(
        "--semantic",
        metavar="MODEL",
        nargs="?",
        const="",
        help="fuse vectors: of the extra's own model, or of the one in this folder",
    )
    return parser


def _index(tools: Tools, encoder: object) -> Index:
    index = Index().updated(tools.servers)
    return index if encoder is None else index.with_vectors(Vectors(encoder).updated(tools.servers))  # type: ignore[arg-type]


def _run(folder: Path, encoder: object) -> Outcome:
    tools = catalogue(rows_of(folder / "tools.jsonl"))
    index = _index(tools, encoder)
    queries = rows_of(folder / "queries.jsonl")
    milliseconds, scores = [], dict.fromkeys(MEASURES, 0.0)
    for query in queries:
        began = time.perf_counter()
        ranking = index.search([query["text"]], limit=DEPTH)
        milliseconds.append((time.perf_counter() - began) * 1000)
        for name, value in measure(query, [tools.ids[hit.key] for hit in ranking.hits]).items():
            scores[name] += value / len(queries)
    return Outcome(scores, milliseconds, len(tools.ids), _listing(index))


def _listing(index: Index) -> int:
    """The count of unserved needs for which the search lists something."""
    return sum(bool(index.search([need], limit=1).hits) for need in UNSERVED)


def _print_quality(outcomes: dict[str, Outcome]) -> None:
    print(
        f"{'set':16} {'tools':>6} {'queries':>7}",
        *(f"{name:>8}" for name in MEASURES),
        "  median    p95   junk",
    )
    for name, each in outcomes.items():
        ms = sorted(each.milliseconds)
        print(
            f"{name:16} {each.tools:6,} {len(ms):7,}",
            *(f"{each.scores[measure]:8.3f}" for measure in MEASURES),
            f"{statistics.median(ms):6.2f}ms {_p95(ms):5.1f}ms {each.unserved:3}/{len(UNSERVED)}",
        )


def _p95(ordered: Sequence[float]) -> float:
    return ordered[int(len(ordered) * 0.95)]


def _print_reference(outcomes: dict[str, Outcome]) -> bool:
    live = [each.scores for name, each in outcomes.items() if name.startswith("livemcp")]
    if not live:
        return True
    recall, ndcg = (sum(scores[name] for scores in live) / len(live) for name in ("R@5", "nDCG@10"))
    print(f"\n{'mean of the livemcp sets':28} recall@5 {recall:.3f}  nDCG@10 {ndcg:.3f}")
    met = recall >= GOAL[0] and ndcg >= GOAL[1]
    print(f"{'PASS' if met else 'FAIL'}  at least the recipe's {GOAL[0]:.2f} and {GOAL[1]:.2f}")
    return met


def _print_scale(data: Path, names: Sequence[str], encoder: object) -> float | None:
    """Print the cost of about 10,000 tools; returns the median of a search, in ms."""
    if not (data / DISTRACTORS).exists():
        return None
    rows = [*rows_of(data / names[0] / "tools.jsonl"), *rows_of(data / DISTRACTORS)]
    many = _index(catalogue(rows[:MANY]), encoder)
    print(f"\n{MANY:,} tools: {_listing(many)} of {len(UNSERVED)} needs that nothing serves list something")
    tracemalloc.start()
    tools = catalogue(rows)
    before = tracemalloc.get_traced_memory()[0]
    index = _index(tools, encoder)
    grown = (tracemalloc.get_traced_memory()[0] - before) / 2**20
    tracemalloc.stop()
    began = time.perf_counter()
    _index(tools, encoder)
    build = (time.perf_counter() - began) * 1000
    ms = sorted(_times(index, [row for name in names for row in rows_of(data / name / "queries.jsonl")]))
    print(
        f"\n{len(tools.ids):,} tools: a search {statistics.median(ms):.2f} ms (p95 {_p95(ms):.1f}), an index of"
        f" all {build:,.0f} ms, memory {grown:.0f} MiB"
    )
    return statistics.median(ms)


def _times(index: Index, queries: list[Row]) -> list[float]:
    times = []
    for query in queries:
        began = time.perf_counter()
        index.search([query["text"]])
        times.append((time.perf_counter() - began) * 1000)
    return times


def _goal(name: str, measured: float, most: float) -> bool:
    met = measured < most
    print(f"{'PASS' if met else 'FAIL'}  {name}: {measured:.2f} ms, goal {most:g} ms")
    return met


if __name__ == "__main__":
    sys.exit(main())
