"""The catalog of chosen servers: their own names, and what stays as it is while nothing of theirs changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.catalog.offer import MAX_CHOICES, Choices, Offers
from daemon.catalog.shown import locate
from daemon.model import Kind
from daemon.states import ServerState
from tests.unit.catalog.samples import after, catalog_of, has, listed, servers, status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.catalog.snapshot import Catalog

CONFIG = {"mcpServers": servers("a", "b", "c")}
BEFORE = catalog_of(CONFIG)


def both_list(*names: str, kind: Kind | None = None) -> Catalog:
    """All servers list the same."""
    facts = [
        listed(server, *names) if kind is None else has(server, kind, *names) for server in ("a", "b", "c")
    ]
    return after(BEFORE, [*(status(server) for server in ("a", "b", "c")), *facts])


def offered(catalog: Catalog, *chosen: str, kind: Kind = Kind.TOOL) -> list[str]:
    """The names under which a client sees what chosen servers list."""
    narrowed = Choices().of(catalog, chosen)
    offer = Offers().of(narrowed, catalog.config.profiles["default"])
    if kind is not Kind.TOOL:
        return list(offer.definitions(kind))
    return [each.name for each in offer.all]


def test_each_name_of_a_single_server_is_its_own() -> None:
    catalog = both_list("x", "a__x", "c/x", "mcp__a__x")
    assert [offered(catalog, each) for each in "abc"] == [["x", "a__x", "c/x", "mcp__a__x"]] * 3


def test_of_several_only_what_two_of_them_have_is_qualified_as_it_is_among_all() -> None:
    catalog = after(both_list("x"), [listed("b", "x", "only"), listed("c", "x", "a__x")])
    assert offered(catalog, "a", "b") == ["x", "b__x", "only"]
    assert offered(catalog, "b", "c") == ["b__x", "only", "c__x", "a__x"]
    # With `a` beside it, its name would read as one of that server's.
    assert offered(catalog, "c", "a") == ["x", "c__x", "c__a__x"]


def test_a_name_that_was_shown_never_comes_to_mean_another_server_s() -> None:
    late = after(BEFORE, [*(status(server) for server in ("a", "b", "c")), listed("b", "x")])
    assert offered(late, "a", "b") == ["x"]
    now = after(late, [listed("a", "x")])
    owner = Choices().of(now, ("a", "b")).names.key_of("x", ("a", "b"))
    assert owner in {None, ("b", "x")}


def test_without_the_servers_of_other_directories_all_others_are_as_they_were() -> None:
    mixed = {"x": {"tools": {"includePatterns": ["*/x"]}}, "b": {"server": "b"}}
    before = catalog_of({"mcpServers": servers("a", "b", "c"), "categories": mixed})
    facts = [fact for each in "abc" for fact in (status(each), listed(each, "x"), has(each, Kind.PROMPT, "p"))]
    whole = after(before, facts)
    choices, offers, profile = Choices(), Offers(), whole.config.profiles["default"]
    seen = choices.of(whole, (), frozenset("b"))
    offer = offers.of(seen, profile)
    assert [each.name for each in offer.all] == ["x", "c__x"]
    assert list(offer.definitions(Kind.PROMPT)) == ["p", "c__p"]
    assert offer.categories == ("x",)
    assert (seen.categories["x"].servers, list(seen.categories["x"].members)) == (("a", "c"), ["x", "c/x"])
    assert offers.of(whole, profile) is not offer
    # Nothing of it is made anew by what changes no list.
    assert (
        offers.of(choices.of(after(whole, [status("b", ServerState.BACKOFF)]), (), frozenset("b")), profile)
        is offer
    )
    without = choices.of(after(whole, [listed("a", "y")]), (), frozenset("b"))
    assert list(without.categories["x"].members) == ["c/x"]


def test_every_name_means_what_it_is_listed_for() -> None:
    catalog = after(both_list("x", "y"), [listed("c", "x", "a__x", "b/y", "b__x", "mcp__a__y")])
    for chosen in (("a",), ("c",), ("a", "b"), ("b", "c"), ("a", "c"), ("a", "b", "c")):
        names = Choices().of(catalog, chosen).names
        assert len(names.owners) == len(names.given)
        assert all(names.key_of(name, chosen) == key for name, key in names.owners.items())


def test_prompts_resources_and_templates_keep_their_names_and_uris() -> None:
    uris = ("file:///x", "no scheme", "mcpd://a/x")
    catalog = both_list(*uris, kind=Kind.RESOURCE)
    assert offered(catalog, "b", kind=Kind.RESOURCE) == list(uris)
    narrowed = Choices().of(catalog, ("b",))
    offer = Offers().of(narrowed, catalog.config.profiles["default"])
    for uri in (*uris, "anything:else"):
        assert locate(narrowed, offer, uri, {"file:///x": "a"}) == ("b", uri)
    assert offered(both_list("{+any}", kind=Kind.TEMPLATE), "c", kind=Kind.TEMPLATE) == ["{+any}"]
    assert offered(both_list("review", kind=Kind.PROMPT), "c", kind=Kind.PROMPT) == ["review"]


def test_of_several_a_uri_that_two_have_says_itself_whose_it_is() -> None:
    catalog = both_list("file:///x", kind=Kind.RESOURCE)
    assert offered(catalog, "a", "b", kind=Kind.RESOURCE) == ["file:///x", "mcpd://b/file%3A%2F%2F%2Fx"]
    narrowed = Choices().of(catalog, ("a", "b"))
    offer = Offers().of(narrowed, catalog.config.profiles["default"])
    assert locate(narrowed, offer, "mcpd://b/file%3A%2F%2F%2Fx", {}) == ("b", "file:///x")
    assert locate(narrowed, offer, "mcpd://c/file%3A%2F%2F%2Fx", {}) is None


def test_what_other_servers_do_changes_nothing_for_those_who_have_not_chosen_them() -> None:
    choices, before = Choices(), both_list("x")
    first = choices.of(before, ("a",))
    assert choices.of(before, ("a",)) is first
    then = choices.of(after(before, [listed("b", "x", "y"), has("b", Kind.PROMPT, "p")]), ("a",))
    for part in ("naming", "lists"):
        assert getattr(then, part) is getattr(first, part)
    changed = choices.of(after(before, [listed("a", "x", "y")]), ("a",))
    assert changed.names is not first.names


def test_who_has_chosen_none_sees_the_catalog_itself() -> None:
    catalog = both_list("x")
    assert Choices().of(catalog, ()) is catalog


def test_offers_of_a_profile_and_of_choices_within_it_are_kept_apart() -> None:
    catalog, offers = both_list("x"), Offers()
    profile = catalog.config.profiles["default"]

    def names(chosen: Iterable[str]) -> list[str]:
        offer = offers.of(offers.choices.of(catalog, tuple(chosen)), profile)
        return [each.name for each in offer.all]

    wanted = {"": ["x", "b__x", "c__x"], "a": ["x"], "b": ["x"], "bc": ["b__x", "c__x"]}
    for _ in range(2):
        assert {chosen: names(chosen) for chosen in wanted} == wanted


def test_no_more_choices_are_kept_than_anybody_has() -> None:
    choices, catalog = Choices(), both_list("x")
    first = choices.of(catalog, ("a",))
    for number in range(MAX_CHOICES):
        choices.of(catalog, (f"s{number}",))
    assert choices.of(catalog, ("a",)) is not first
