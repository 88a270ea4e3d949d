"""Trust: the definitions that are held, and those that are offered."""

from __future__ import annotations

from typing import Any

import attrs

from daemon.catalog.forms import MAX_WORK, form_of
from daemon.catalog.snapshot import Catalog
from daemon.catalog.trust import FIRST, MAX_FORMS, HeldBecause, joined
from daemon.config.lock_file import LOCK, Lock, LockedLine, LockedServer
from daemon.facts import Approved, Configured, DefinitionsListed
from daemon.model import Approval, Kind, Tool
from tests.unit.catalog.samples import after, catalog_of, listed, prompts, resources, tool

LOG, OTHER_LOG = (tool("git", "log", description=text) for text in ("Shows commits.", "Deletes commits."))
DIFF = tool("git", "diff", description="Shows changes.")


def begun(trust: str = "changes", **more: Any) -> Catalog:
    """A catalog whose approvals were read."""
    return after(catalog_of({"mcpServers": {"git": {"command": "x", "trust": trust, **more}}}), [Approved()])


def held_in(catalog: Catalog) -> dict[str, HeldBecause]:
    return {name: each.because for name, each in catalog.servers["git"].tool_list.held.items()}


def offered(catalog: Catalog) -> list[str]:
    return list(catalog.servers["git"].tools or {})


def lists(*tools: Tool, run: int = 1) -> DefinitionsListed:
    return listed("git", *tools, incarnation=run)


def test_a_server_that_is_trusted_offers_what_it_lists() -> None:
    catalog = after(begun("all"), [lists(LOG), lists(OTHER_LOG, DIFF)])
    assert (offered(catalog), held_in(catalog)) == (["log", "diff"], {})
    assert not catalog.approvals


def test_the_first_list_is_approved_and_what_comes_later_is_held() -> None:
    catalog = after(begun(), [lists(LOG)])
    assert offered(catalog) == ["log"]
    catalog = after(catalog, [lists(OTHER_LOG, DIFF)])
    assert offered(catalog) == []
    assert held_in(catalog) == {"log": HeldBecause.CHANGED, "diff": HeldBecause.NEW}
    (known,) = (catalog.approvals or {}).values()
    assert [each.by for each in known[Kind.TOOL, "log"]] == [FIRST]
    assert (after(catalog, [lists(LOG)]).servers["git"].tools or {}).keys() == {"log"}


def approved(catalog: Catalog, *tools: Tool, by: str = "olga") -> Approved:
    """Somebody approves tools of git."""
    identity = catalog.servers["git"].gate.identity
    given = [Approval(identity=identity, kind=each.kind, name=each.name, raw=each.raw, by=by) for each in tools]
    return Approved(approvals=tuple(given), at=1.0)


def locked(catalog: Catalog, *tools: Tool, identity: str = "") -> Configured:
    """A lock approves these tools of git, and nothing else; `identity` is another entry's."""
    forms = {each.name: form_of(each.kind, each.raw) for each in tools}
    lines = {name: LockedLine(hash=form.digest, parts=form.parts) for name, form in forms.items()}
    identity = identity or catalog.servers["git"].gate.identity
    lock = Lock(servers={"git": LockedServer(identity=identity, tools=lines)})
    return Configured(config=attrs.evolve(catalog.config, lock=lock), now=1.0)


def test_a_server_may_list_its_first_tools_late_and_not_its_first_prompts() -> None:
    catalog = after(begun(), [lists(), prompts("git"), lists(LOG), prompts("git", "review")])
    assert offered(catalog) == ["log"]
    assert [*catalog.servers["git"].list_of(Kind.PROMPT).held] == ["review"]


def test_a_change_is_told_against_the_form_that_was_approved_last() -> None:
    catalog = after(begun(), [lists(LOG), lists(OTHER_LOG)])
    catalog = after(catalog, [approved(catalog, OTHER_LOG), lists(tool("git", "log", description="Sends."))])
    held = catalog.held(("git", "log"))
    assert held is not None
    assert held.before == OTHER_LOG.raw


def test_what_is_too_much_to_be_compared_is_held() -> None:
    size, count = 4096, MAX_WORK // 4096
    lists_of = [
        [tool("git", f"log{number}", description=letter * size) for number in range(count)] for letter in "ab"
    ]
    catalog = after(begun(), [lists(*lists_of[0]), lists(*lists_of[1])])
    assert list(held_in(catalog).values()) == [HeldBecause.CHANGED] * count
    last = catalog.held(("git", f"log{count - 1}"))
    assert last is not None
    assert last.change == {}


def test_so_many_forms_stay_approved_the_latest() -> None:
    forms = [tool("git", "log", description=f"Shows {letter}.") for letter in "abcdefghi"]
    assert len(forms) == MAX_FORMS + 1
    catalog = after(begun("none"), [lists(forms[0])])
    catalog = after(catalog, [approved(catalog, each) for each in forms])
    assert [not held_in(after(catalog, [lists(each)])) for each in forms] == [False] + [True] * MAX_FORMS


def test_the_author_of_a_form_is_the_first_and_of_equal_forms_the_last() -> None:
    ones = [tool("git", "log", description=f"Version {number}.") for number in (1, 2)]
    catalog = after(begun("none"), [lists(ones[0])])
    facts = [
        approved(catalog, each, by=by) for each, by in zip((*ones, ones[0]), ("ann", "ben", "eve"), strict=True)
    ]
    catalog = after(catalog, facts)
    found = [catalog.servers["git"].gate.approval_of(each) for each in (*ones, LOG)]
    assert [each and each.by for each in found] == ["ben", "ben", None]
    known = (catalog.approvals or {})[catalog.servers["git"].gate.identity]
    assert joined(known, facts[2].approvals) is known


def test_with_a_lock_no_other_approval_counts_and_the_lock_is_an_author() -> None:
    catalog = after(begun(), [lists(OTHER_LOG, DIFF)])
    catalog = after(catalog, [locked(catalog, LOG)])
    assert held_in(catalog) == {"log": HeldBecause.CHANGED, "diff": HeldBecause.NEW}
    held = catalog.held(("git", "log"))
    assert held is not None
    assert held.change == {"members": ["description"]}, "by the parts in the lock, as no form of it is known"
    catalog = after(catalog, [lists(LOG, DIFF)])
    assert (offered(catalog), held_in(catalog)) == (["log"], {"diff": HeldBecause.NEW})
    known = (catalog.approvals or {})[catalog.servers["git"].gate.identity]
    assert [(each.raw, each.by) for each in known[Kind.TOOL, "log"]] == [
        (OTHER_LOG.raw, FIRST),
        (LOG.raw, LOCK),
    ]


def test_a_first_list_under_a_lock_is_held_if_the_lock_lacks_it_and_resources_never_are() -> None:
    catalog = after(begun(), [locked(begun(), LOG), lists(DIFF, LOG), resources("git", "a://b")])
    assert (offered(catalog), held_in(catalog)) == (["log"], {"diff": HeldBecause.NEW})
    assert [*catalog.servers["git"].list_of(Kind.RESOURCE).definitions] == ["a://b"]


def test_a_lock_for_another_command_of_the_server_approves_nothing() -> None:
    catalog = after(begun(), [lists(LOG)])
    catalog = after(catalog, [locked(catalog, LOG, identity="another command"), lists(LOG)])
    assert (offered(catalog), held_in(catalog)) == ([], {"log": HeldBecause.LOCK})
