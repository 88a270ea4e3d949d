"""A list is screened of secrets whatever it is a list of, and what is wrong with it is logged once."""

from __future__ import annotations

import pytest
from msgspec import Raw

from daemon.model import Kind
from daemon.safety.redact import Redactor
from daemon.upstreams.server_lists import UNSPEAKABLE, Warnings, screen, unusable
from tests.unit.catalog.samples import definition_json, tool_json


def redactor() -> Redactor:
    redact = Redactor(())
    redact.learn(["s3cret"], [])
    return redact


@pytest.mark.parametrize("kind", Kind)
def test_a_secret_is_taken_out_of_a_definition_and_quarantines_a_name(kind: Kind) -> None:
    write = tool_json if kind is Kind.TOOL else lambda name, **more: definition_json(kind, name, **more)
    raws = [Raw(write("x:plain", description="s3cret")), Raw(write("x:s3cret"))]
    usable, quarantined = screen(kind, "git", raws, redactor())
    (kept,) = usable
    assert b"s3cret" not in kept.raw
    assert quarantined == {"x:[redacted]": UNSPEAKABLE}
    assert usable.screened.hidden == {}


def test_what_cannot_be_used_is_counted_by_its_kind() -> None:
    assert unusable(Kind.PROMPT, {"x": "bad", "y": "bad"}).text == (
        "it lists 2 prompts, of which none can be used; x: bad"
    )


def test_a_list_that_is_refused_again_and_again_is_logged_once_and_anew_after_a_success(
    said: list[str],
) -> None:
    warnings = Warnings("git", Kind.RESOURCE)
    for _ in range(3):
        warnings.of_problem("refused")
    _usable, quarantined = screen(Kind.RESOURCE, "git", [Raw(b"{}")], redactor())
    warnings.of(quarantined, ())
    warnings.of_problem("refused")
    assert said == [
        "does not list its resources: refused",
        "resource (resource 1) is quarantined: has no uri",
        "does not list its resources: refused",
    ]
