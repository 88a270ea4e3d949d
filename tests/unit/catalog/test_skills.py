"""Skills (SEP-2640): a fourth list, whose URIs name their server, and whose files are read from it."""

import json
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from daemon.catalog.listing import read_definitions
from daemon.catalog.naming import with_uris
from daemon.catalog.offer import Choices, Offer
from daemon.catalog.shown import locate
from daemon.catalog.snapshot import Catalog
from daemon.config.config_model import Profile
from daemon.facts import Approved, DefinitionsListed
from daemon.model import Kind, ToolKey
from daemon.operators.news import changed
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, resources, servers, status, switched

ROOT = "skill://acme/refunds"
ELSEWHERE = "github://acme/repo/refunds"


def entry(root: str = ROOT, digest: str = "0") -> dict[str, Any]:
    """A skill as a server lists it."""
    files = [
        {"uri": f"{root}/{name}", "digest": f"sha256:{digest}", "size": 1} for name in ("SKILL.md", "a/b.md")
    ]
    front = {"name": "refunds", "description": "d", "metadata": {"v": "1.0"}}
    return {"uri": f"{root}/SKILL.md", "frontmatter": front, "resources": files}


def skills(server: str, *entries: dict[str, Any]) -> DefinitionsListed:
    """A server lists these skills."""
    read, quarantined = read_definitions(
        Kind.SKILL, server, [Raw(msgspec.json.encode(each)) for each in entries]
    )
    assert not quarantined
    return DefinitionsListed(server=server, incarnation=1, kind=Kind.SKILL, definitions=read)


def offer(catalog: Catalog, **profile: Any) -> Offer:
    """What a profile offers."""
    return Offer(catalog, Profile(name="p", **profile))


def shown(of: Offer) -> list[dict[str, Any]]:
    """What `skills/list` answers."""
    return [json.loads(raw) for raw in of.listed(Kind.SKILL)]


BEGUN = after(catalog_of({"mcpServers": servers("a", "b", "c")}), [status(name) for name in "abc"])
TOOLS = [listed(name, "t") for name in "abc"]
BOTH = after(
    BEGUN, [*TOOLS, skills("a", entry()), skills("b", entry(), entry(ELSEWHERE)), resources("c", "mem://x")]
)


def located(catalog: Catalog, uri: str) -> ToolKey | None:
    return locate(catalog, offer(catalog), uri, {})


def test_a_server_alone_keeps_its_skills_as_they_are() -> None:
    alone = Choices().of(BOTH, ("b",))
    assert offer(alone).listed(Kind.SKILL) == tuple(each.raw for each in alone.lists[Kind.SKILL]["b"].values())
    assert located(alone, f"{ROOT}/a/b.md") == ("b", f"{ROOT}/a/b.md")


@pytest.mark.parametrize("name", ["SKILL.md", "a/b.md", "a"])
def test_a_uri_that_a_text_names_is_the_only_servers_with_a_skill_there(name: str) -> None:
    only = after(BEGUN, [*TOOLS, skills("b", entry()), resources("c", "mem://x")])
    assert located(only, f"{ROOT}/{name}") == ("b", f"{ROOT}/{name}")
    assert located(only, f"{ROOT}s/{name}") is None
    if name != "SKILL.md":
        assert located(BOTH, f"{ROOT}/{name}") is None, "it could be either's"


def test_a_changed_digest_is_a_change_of_the_list_and_an_event() -> None:
    now = after(BOTH, [skills("a", entry(digest="1"))])
    before, entered = BOTH.servers["a"], now.servers["a"]
    assert entered.epoch == before.epoch + 1
    assert now.servers["b"].epoch == BOTH.servers["b"].epoch
    assert shown(offer(now)) != shown(offer(BOTH))
    event = changed(before, entered)
    assert event.details["skills"] == {"came": [], "went": [], "changed": [f"{ROOT}/SKILL.md"]}


def test_a_skill_whose_file_has_another_digest_is_held_and_a_new_order_is_not() -> None:
    old, new = (sha256(text).hexdigest() for text in (b"old", b"new"))
    config = {"mcpServers": {"a": {"command": "a", "trust": "changes"}}}
    known = after(
        catalog_of(config), [Approved(), status("a"), listed("a", "t"), skills("a", entry(digest=old))]
    )
    turned = {**entry(digest=old), "resources": entry(digest=old)["resources"][::-1]}
    assert shown(offer(after(known, [skills("a", turned)])))
    changed = after(known, [skills("a", entry(digest=new))])
    assert not shown(offer(changed))
    assert located(changed, f"{ROOT}/a/b.md") is None
    assert dict(changed.servers["a"].list_of(Kind.SKILL).held[f"{ROOT}/SKILL.md"].change) == {
        "members": ["resources"]
    }
    assert shown(offer(after(changed, [skills("a", entry(digest=old))])))


def test_an_operator_switches_a_skill_off() -> None:
    off = after(BOTH, [switched(f"a/skill:{ROOT}/SKILL.md")])
    assert located(off, "skill://mcpd+a/acme/refunds/a/b.md") is None
    assert next(each["uri"] for each in shown(offer(off))) == "skill://mcpd+b/acme/refunds/SKILL.md"
    assert located(off, "skill://mcpd+a/acme/refunds/SKILL.md") is None


@cases("members", "why")
def test_an_entry_that_no_host_may_load_is_quarantined(members: dict[str, Any], why: str) -> None:
    raw = Raw(msgspec.json.encode({**entry(), **members}))
    usable, quarantined = read_definitions(Kind.SKILL, "a", [raw])
    assert not usable
    assert why in quarantined[f"{ROOT}/SKILL.md"]


def test_a_skill_without_digests_is_named_too() -> None:
    catalog = after(BEGUN, [*TOOLS, skills("a", {**entry(), "resources": "dynamic"})])
    (found,) = shown(offer(catalog))
    assert (found["uri"], found["resources"]) == ("skill://mcpd+a/acme/refunds/SKILL.md", "dynamic")


@pytest.mark.parametrize(
    "raw", [b"[]", b"{}", b"\xff", b'{"skill":7,"contents":7}', b'{"contents":[{"uri":7}]}']
)
def test_a_result_that_is_none_passes_as_it_is(raw: bytes) -> None:
    assert with_uris(str.upper, ("skill.uri", "skill.resources.*.uri", "contents.*.uri"), raw) == raw


def test_a_faulty_entry_leaves_the_others_named() -> None:
    raw = b'{"contents":[{"uri":7},{"uri":"a","text":"b"}]}'
    assert with_uris(str.upper, ("contents.*.uri",), raw) == raw.replace(b'"a"', b'"A"')
