"""`mcpd search`: the tools that fit a need, as a model's search finds them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from daemon.cli.control import EX_FAULT, ask_with, guarded
from daemon.cli.options import add_control, add_json, count, parser
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

SHOWN = 20
"""Number of tools shown unless `--limit` says otherwise: as many as a model gets."""

Json = dict[str, Any]


def main(argv: list[str]) -> int:
    """Search for tools.

    Returns:
        0: found; 1: nothing fits, or no such category or profile; 2: usage; 3: the daemon is not reachable.
    """
    made = _parser()
    options = made.parse_args(argv)
    query = " ".join(options.words).strip()
    if not query and not options.also:
        made.error("say what you need, as in: mcpd search read a file")
    phrasings = [query, *(" ".join(words) for words in options.also)]
    return guarded(lambda: _show(options, [text for text in phrasings if text.strip()]))


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "search",
        "Find tools for a need, by words or by name, best first: what the tool search of the surfaces `search`"
        " and `load` finds. Further phrasings of the same need (--or) find more than either.",
        examples=(
            "mcpd search read a file",
            "mcpd search what changed lately --or commit history",
            "mcpd search list --category git-read --json",
        ),
        exits={0: "found", 1: "nothing fits, or there is no such category or profile"},
    )
    made.add_argument("words", metavar="WORDS", nargs="*", help="what you need")
    made.add_argument(
        "--or",
        dest="also",
        metavar="WORDS",
        nargs="+",
        action="append",
        default=[],
        help="another phrasing of it; repeatable",
    )
    made.add_argument("--category", metavar="C", help="only this category's tools")
    made.add_argument(
        "--limit", metavar="N", type=count, default=SHOWN, help="tools to show (default: %(default)d)"
    )
    made.add_argument("--profile", metavar="N", help="as clients of this profile see it (default: `default`)")
    add_json(made)
    add_control(made)
    return made


def _show(options: argparse.Namespace, queries: list[str]) -> int:
    asked: Mapping[str, object] = {
        "queries": queries,
        "limit": options.limit,
        **({"category": options.category} if options.category else {}),
        **({"profile": options.profile} if options.profile else {}),
    }
    answer: Json = ask_with(options, "search", dict(asked))
    if options.json:
        print(document(answer))
    elif answer["tools"]:
        from daemon.cli.terminal import Screen  # noqa: PLC0415
        from daemon.cli.views import render_search  # noqa: PLC0415 - imports rich, which `--json` does without

        print(render_search(answer, Screen.of(sys.stdout, os.environ)))
    else:
        print(visible(_nothing(queries, answer["suggestions"])), file=sys.stderr)
    return 0 if answer["tools"] else EX_FAULT


def _nothing(queries: list[str], suggestions: list[str]) -> str:
    hint = f" Did you mean: {', '.join(suggestions)}?" if suggestions else " `mcpd tools` shows all of them."
    return f"mcpd: no tool fits {' or '.join(queries)!r}.{hint}"
