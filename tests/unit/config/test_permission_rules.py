"""Rules of permission as the file has them, and what is wrong or pointless in them."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.permissions import fits
from daemon.config.config_model import MAX_RULES, Annotations, Permission, PermissionRule
from daemon.config.validate import covers, server_in, unknown_servers, unreachable
from tests.unit.cases import cases, rows_of
from tests.unit.catalog.samples import tool
from tests.unit.config.reading import config_of, faults_in, with_server


def rule(match: str | None = None, then: str = "ask", **annotations: bool) -> PermissionRule:
    wanted = Annotations(**annotations) if annotations else None
    return PermissionRule(match=match, annotations=wanted, then=Permission(then))


def test_there_may_be_so_many() -> None:
    rules = [{"match": f"git/t{number}", "then": "ask"} for number in range(MAX_RULES + 1)]
    assert not faults_in({"profiles": {"few": {"permissions": rules[1:]}}})
    ((path, message),) = faults_in({"profiles": {"many": {"permissions": rules}}})
    assert (path, "too many" in message) == ("$.profiles.many.permissions", True)


@cases("pattern", "server")
def test_a_pattern_may_name_its_server(pattern: str, server: str | None) -> None:
    assert server_in(pattern, ["git", "fs"]) == server


def test_a_server_that_is_not_configured_is_told() -> None:
    rules = [rule("gti/push"), rule("git/push"), rule("g*/push"), rule("x*/push"), rule(read_only=True)]
    found = {fault.path: fault.message for fault in unknown_servers(rules, "$", ["git", "fs"])}
    assert found.keys() == {"$[0].match", "$[3].match"}
    assert "did you mean 'git'" in found["$[0].match"].lower()


@cases("earlier", "later")
def test_what_an_earlier_rule_is_for_a_later_one_never_comes_to(
    earlier: dict[str, Any], later: dict[str, Any]
) -> None:
    assert covers(rule(**earlier), rule(**later))


@cases("earlier", "later")
def test_what_may_still_be_reached_is_not_told(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    assert not covers(rule(**earlier), rule(**later))


(_PATTERNS,) = rows_of(Path(__file__), "patterns")
PATTERNS = st.sampled_from(_PATTERNS)
WANTED = st.none() | st.builds(
    Annotations, read_only=st.none() | st.booleans(), destructive=st.none() | st.booleans()
)
RULES = st.builds(PermissionRule, match=PATTERNS, annotations=WANTED, then=st.sampled_from(list(Permission)))
TOOLS = [
    tool(server, name, annotations=hints)
    for server in ("s", "t")
    for name in ("a", "b", "ab", "aa", "ba", "c")
    for hints in (
        {},
        {"readOnlyHint": True},
        {"destructiveHint": False},
        {"readOnlyHint": True, "destructiveHint": True},
    )
]


@given(earlier=RULES, later=RULES)
def test_a_rule_that_is_said_to_be_covered_fits_no_tool_that_the_earlier_does_not(
    earlier: PermissionRule, later: PermissionRule
) -> None:
    if covers(earlier, later):
        assert all(fits(earlier, each) for each in TOOLS if fits(later, each))


def test_it_is_said_which_rule_wins() -> None:
    rules = [rule("git/*", "ask"), rule("git/push", "deny"), rule("git/log", "ask")]
    contradicting, equal = unreachable(rules, "$")
    assert (contradicting.path, equal.path) == ("$[1]", "$[2]")
    assert "the first match wins" in contradicting.message
    assert "says 'ask'" in contradicting.message
    assert "move it before that" in contradicting.message
    assert "says the same" in equal.message


def of_rules(*rules: Any) -> dict[str, Any]:
    return {**with_server(), "profiles": {"default": {"permissions": list(rules)}}}


def test_rules_are_read_in_their_order() -> None:
    rules = (
        config_of(
            of_rules(
                {"match": "git/push_*", "then": "deny"},
                {"annotations": {"destructive": True, "openWorld": False}, "then": "ask"},
            )
        )
        .profiles["default"]
        .permissions
    )
    assert rules == (
        PermissionRule(match="git/push_*", then=Permission.DENY),
        PermissionRule(annotations=Annotations(destructive=True, open_world=False), then=Permission.ASK),
    )
    assert rules[1].annotations is not None
    assert rules[1].annotations.wanted == {"destructive": True, "open_world": False}


@cases("rule", "place", "said")
def test_a_rule_that_says_nothing_or_too_much_is_a_fault(rule: Any, place: str, said: str) -> None:
    ((path, message),) = faults_in(of_rules(rule))
    assert path == f"$.profiles.default.permissions[0]{place}"
    assert said in message
