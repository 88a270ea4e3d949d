"""The page of definitions that wait for approval, one line each, with differences on demand and buttons."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from textwrap import shorten
from typing import TYPE_CHECKING

import msgspec

from daemon.catalog.kinds import switch_of
from daemon.console.page import ConsoleAction, ConsolePage, Holders, Viewer, element_id, page_number, part
from daemon.errors import InvalidArguments
from daemon.history.event_words import of_held
from daemon.operators.news import members_differing, waiting, word_of

if TYPE_CHECKING:
    from daemon.catalog.trust import HeldDefinition
    from daemon.console.page import Fragment

SHOWN = 100
"""Definitions on a page; its buttons approve only these."""

LONGEST = 100_000
"""Characters of a member in a difference: a definition may have a megabyte."""

BRIEF = 300
"""Characters of a changed member that the list itself shows, before and now; a longer one is a click away."""

TOLD = 1000
"""Characters of names in a notice."""


async def _fragments(viewer: Viewer) -> Holders:
    server, word = viewer.query.get("server", ""), viewer.query.get("name", "")
    waits = waiting(viewer.context.catalog, server, word)
    pages = max(1, -(-len(waits) // SHOWN))
    page = page_number(viewer.query.get("page", ""), pages)
    shown = waits[(page - 1) * SHOWN : page * SHOWN]
    facts = {"total": len(waits), "count": len(shown), "forms": _forms(shown), "page": page, "pages": pages}
    return {
        "approvals-notes": [part("notes", "approvals_notes", **facts, server=server, word=word)],
        "approvals": [
            of_server(element_id("held", name), list(held), in_full=bool(word))
            for name, held in groupby(shown, key=lambda each: each.definition.server)
        ],
    }


APPROVALS_PAGE = ConsolePage(
    path="/approvals", title="Approvals", template="approvals.html", fragments=_fragments, calls_every=None
)


def of_server(name: str, held: list[HeldDefinition], *, in_full: bool) -> Fragment:
    """The fragment of a server's held definitions; with `in_full`, of one definition and its difference."""
    rows = [
        (word_of(each), of_held(each.because, each.change), _forms([each]), [] if in_full else _brief(each))
        for each in held
    ]
    facts = {"server": held[0].definition.server, "forms": _forms(held), "longest": LONGEST}
    members = members_differing(held[0]) if in_full else None
    return part(name, "approvals_server", rows=rows, held=held[0], members=members, **facts)


def _brief(held: HeldDefinition) -> list[tuple[str, str | None, str | None]]:
    """The members that differ from the approved form, if all are short enough to be read in a list."""
    members = members_differing(held) if held.before else []
    texts = [text for _, *both in members for text in both if text]
    return members if all(len(text) <= BRIEF for text in texts) else []


def _key(held: HeldDefinition) -> tuple[str, str]:
    return held.definition.server, word_of(held)


def _forms(held: Iterable[HeldDefinition]) -> str:
    """The definitions that a button approves, each as server, word and schema hash."""
    # ASCII: a name may turn round the text next to it.
    return json.dumps([(*_key(each), each.definition.schema_hash) for each in held])


async def _approve(viewer: Viewer, fields: Mapping[str, str]) -> str:
    try:
        shown = msgspec.json.decode(fields.get("forms", ""), type=list[tuple[str, str, str]])
    except msgspec.MsgspecError:
        raise InvalidArguments("this form names nothing to approve: use a button of the page") from None
    wanted = {(server, word): form for server, word, form in shown}
    held = waiting(viewer.context.catalog)
    same = [each.definition for each in held if wanted.get(_key(each)) == each.definition.schema_hash]
    approved = await viewer.context.approver.approve(same, viewer.context.principal)
    done = {(each.server, switch_of(each.kind, each.name)) for each in approved}
    left = set(map(_key, waiting(viewer.context.catalog)))
    told = {
        "Approved": [key for key in wanted if key in done],
        "Changed since the page showed it, and still waits": [key for key in wanted if key in left],
        "No longer waits": [key for key in wanted if key not in done | left],
    }
    return " ".join(
        f"{what}: {shorten(', '.join(map('/'.join, keys)), TOLD)}." for what, keys in told.items() if keys
    )


APPROVE = ConsoleAction(path="/approvals/approve", act=_approve)
