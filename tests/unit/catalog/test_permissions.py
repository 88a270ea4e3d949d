"""Which permission each tool has: the first rule that fits wins, and what is hidden is hidden everywhere."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.offer import Offer, Offers
from daemon.catalog.permissions import Permissions, permission_of, permission_of_name, pointless
from daemon.catalog.snapshot import Catalog
from daemon.config.config_model import Annotations, Permission, PermissionRule
from tests.unit.cases import cases
from tests.unit.catalog.samples import catalog_of, servers, tool, up

READ = {"readOnlyHint": True}


def rule(match: str | None = None, then: str = "ask", **annotations: bool) -> PermissionRule:
    wanted = Annotations(**annotations) if annotations else None
    return PermissionRule(match=match, annotations=wanted, then=Permission(then))


@cases("match", "fitting")
def test_tools_are_named_as_elsewhere(match: str, fitting: bool) -> None:
    found = permission_of([rule(match, "deny")], tool("fs", "write_file"))
    assert found is (Permission.DENY if fitting else Permission.ALLOW)


def test_of_a_tool_that_is_not_listed_no_more_is_said_than_its_name_tells() -> None:
    rules = [rule("fs/read", "allow"), rule("fs/*", "ask", destructive=True), rule("git/*", "deny")]
    assert permission_of_name(rules, "fs", "read") is Permission.ALLOW
    assert permission_of_name(rules, "fs", "write") is None
    assert permission_of_name(rules, "git", "push") is Permission.DENY
    assert permission_of_name(rules, "web", "get") is Permission.ALLOW


PATTERNS = st.sampled_from([None, "*", "read", "re*", "fs/*", "fs/read", "git/w*", "/^w/", "mcp__fs__write"])
WANTED = st.none() | st.builds(
    Annotations,
    read_only=st.none() | st.booleans(),
    destructive=st.none() | st.booleans(),
    open_world=st.none() | st.booleans(),
)
RULES = st.lists(
    st.builds(PermissionRule, match=PATTERNS, annotations=WANTED, then=st.sampled_from(list(Permission))),
    max_size=6,
)
HINTS = st.fixed_dictionaries(
    {},
    optional={"readOnlyHint": st.booleans(), "destructiveHint": st.booleans(), "openWorldHint": st.booleans()},
)
NAMES = {  # written out by hand: which names each pattern means
    None: {"fs/read", "fs/write", "git/read", "git/write"},
    "*": {"fs/read", "fs/write", "git/read", "git/write"},
    "read": {"fs/read", "git/read"},
    "re*": {"fs/read", "git/read"},
    "fs/*": {"fs/read", "fs/write"},
    "fs/read": {"fs/read"},
    "git/w*": {"git/write"},
    "/^w/": {"fs/write", "git/write"},
    "mcp__fs__write": {"fs/write"},
}


def naive(rules: list[PermissionRule], server: str, name: str, hints: dict[str, bool]) -> Permission:
    """What the rules say, as the documentation has it."""
    read_only = hints.get("readOnlyHint", False)
    destructive = not read_only and hints.get("destructiveHint", True)
    open_world = hints.get("openWorldHint", True)
    for each in rules:
        wanted = each.annotations or Annotations()
        if (
            f"{server}/{name}" in NAMES[each.match]
            and wanted.read_only in (None, read_only)
            and wanted.destructive in (None, destructive)
            and wanted.open_world in (None, open_world)
        ):
            return each.then
    return Permission.ALLOW


@given(rules=RULES, server=st.sampled_from(["fs", "git"]), name=st.sampled_from(["read", "write"]), hints=HINTS)
def test_the_first_rule_that_fits_wins(
    rules: list[PermissionRule], server: str, name: str, hints: dict[str, bool]
) -> None:
    one = tool(server, name, annotations=hints)
    expected = naive(rules, server, name, hints)
    assert permission_of(rules, one) is expected
    assert Permissions(rules).of(server, name, {name: one}) is expected
    assert permission_of_name(rules, server, name) in {expected, None}


# --- what a profile offers -----------------------------------------------------------------------------------


def offer_of(*rules: Any, **profile: Any) -> tuple[Catalog, Offer]:
    config = {"profiles": {"default": {"permissions": list(rules), **profile}}}
    catalog = up(config, fs=[tool("fs", "read", annotations=READ), "write"], git=["push"])
    return catalog, Offers().of(catalog, catalog.config.profiles["default"])


def names(offer: Offer) -> list[str]:
    return [each.name for each in offer.all]


def test_what_is_denied_is_not_offered_and_what_asks_says_so() -> None:
    _, offer = offer_of(
        {"match": "git/*", "then": "deny"},
        {"annotations": {"readOnly": False}, "then": "ask"},
        coreTools=["push"],
    )
    assert names(offer) == ["read", "write"]
    assert [each.asks for each in offer.all] == [False, True]
    assert len(offer.listing) == 2
    assert not offer.core
    assert offer.find("push") is None
    assert not offer.is_everything


def test_what_no_tool_matches_is_told_once_that_is_known() -> None:
    def told(*patterns: str) -> dict[str, str]:
        return dict(pointless([rule(each) for each in patterns], catalog.servers))

    catalog, _ = offer_of()
    assert told("fs/read", "g*/push", "re*", "/./", "*") == {}
    assert told("fs/delete", "gti/*", "delete_*") == {
        "fs/delete": "fs lists no such tool",
        "gti/*": "there is no server gti",
        "delete_*": "no server lists such a tool",
    }
    catalog = catalog_of({"mcpServers": servers("fs", "git")})
    assert told("fs/delete", "delete_*") == {}
