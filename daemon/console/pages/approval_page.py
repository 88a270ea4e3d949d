"""The page of definitions that wait for approval, one line each, with differences on demand and buttons."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated

import msgspec

from daemon.catalog.kinds import path_of
from daemon.console.page import ConsoleAction, ConsolePage, Holders, Viewer, element_id, page_number, part
from daemon.errors import InvalidArguments
from daemon.history.event_words import of_held
from daemon.operators.news import members_differing, waiting
from daemon.operators.trust_commands import ApproveParams, approve

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

_Forms = Annotated[dict[str, str], msgspec.Meta(min_length=1)]


async def _fragments(viewer: Viewer) -> Holders:
    server, word = viewer.query.get("server", ""), viewer.query.get("name", "")
    entries = [each for each in viewer.context.catalog.servers.values() if server in {"", each.name}]
    waits = [held for path, held in waiting(*entries).items() if word in {"", path.partition("/")[2]}]
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
        (path_of(each.definition), of_held(each.because, each.change), _forms([each]), _brief(each))
        for each in held
    ]
    members = members_differing(held[0]) if in_full else None
    facts = {"server": held[0].definition.server, "forms": _forms(held), "members": members}
    return part(name, "approvals_server", rows=rows, held=held[0], longest=LONGEST, **facts)


def _brief(held: HeldDefinition) -> list[tuple[str, str | None, str | None]]:
    """The members that differ from the approved form, if all are short enough to be read in a list."""
    members = members_differing(held) if held.before else []
    texts = [text for _, *both in members for text in both if text]
    return members if all(len(text) <= BRIEF for text in texts) else []


def _forms(held: Iterable[HeldDefinition]) -> str:
    """The definitions that a button approves, as JSON: schema hashes by `SERVER/WORD`."""
    # ASCII: a name may turn round the text next to it.
    return json.dumps({path_of(each.definition): each.definition.schema_hash for each in held})


async def _approve(viewer: Viewer, fields: Mapping[str, str]) -> str:
    try:
        forms = msgspec.json.decode(fields.get("forms", ""), type=_Forms)
    except msgspec.MsgspecError:
        raise InvalidArguments("this form names nothing to approve: use a button of the page") from None
    answer = await approve(viewer.context, ApproveParams(forms=forms, approve=True))
    done, left = ([f"{row['server']}/{row['name']}" for row in answer[key]] for key in ("approved", "waiting"))
    told = {
        "Approved": done,
        "Changed since the page showed it, and still waits": left,
        "No longer waits": answer["idle"],
    }
    lines = [f"{what}: {shorten(', '.join(names), TOLD)}." for what, names in told.items() if names]
    return " ".join([*lines, *filter(None, [answer["note"]])])


APPROVE = ConsoleAction(path="/approvals/approve", act=_approve)
