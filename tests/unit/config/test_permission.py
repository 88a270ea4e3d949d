"""Rules of permission as the file has them."""

from typing import Any

from daemon.config.config_model import Annotations, Permission, PermissionRule
from tests.unit.cases import cases
from tests.unit.config.reading import config_of, faults_in, with_server


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


def test_without_rules_there_are_none() -> None:
    assert config_of(with_server()).profiles["default"].permissions == ()
    assert config_of(of_rules()).profiles["default"].permissions == ()


@cases("rule", "place", "said")
def test_a_rule_that_says_nothing_or_too_much_is_a_fault(rule: Any, place: str, said: str) -> None:
    ((path, message),) = faults_in(of_rules(rule))
    assert path == f"$.profiles.default.permissions[0]{place}"
    assert said in message
