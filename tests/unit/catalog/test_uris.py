"""A URI is read from the server that it belongs to, whatever other servers list, link to or fit."""

import re
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.naming import MAX_COMPARED, MAX_URI, Letters, Template, fitting, is_mcpd, mcpd_uri
from daemon.catalog.offer import Offer
from daemon.catalog.shown import locate
from daemon.catalog.snapshot import Catalog
from daemon.config.config_model import Profile
from daemon.facts import Fact
from daemon.model import Kind, ToolKey
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, resources, servers, switched, templates

NAMES = ("a", "b", "c")
CONFIG = {"mcpServers": servers(*NAMES)}


def catalog(*facts: Fact, **config: Any) -> Catalog:
    return after(catalog_of({**CONFIG, **config}), facts)


def located(of: Catalog, uri: str, linked: Mapping[str, str] | None = None, **profile: Any) -> ToolKey | None:
    return locate(of, Offer(of, Profile(name="p", **profile)), uri, linked or {})


X = "file:///x"
BOTH = catalog(resources("a", X), resources("b", X, "file:///y"))


def test_a_listed_uri_is_read_from_its_owner_and_the_second_one_s_under_its_own_form() -> None:
    assert located(BOTH, X) == ("a", X)
    assert located(BOTH, "mcpd://b/file%3A%2F%2F%2Fx") == ("b", X)
    assert located(BOTH, "mcpd://a/file%3A%2F%2F%2Fx") == ("a", X), "this form always works"
    assert located(BOTH, "mcpd://b/file:///unlisted") == ("b", "file:///unlisted")


def test_a_profile_without_the_owner_reads_from_whom_it_has() -> None:
    categories = {"only": {"server": "b", "description": "b's"}}
    of = catalog(listed("b", "t"), resources("a", X), resources("b", X), categories=categories)
    assert located(of, X, categories=("only",)) == ("b", X)
    assert located(of, "mcpd://a/file%3A%2F%2F%2Fx", categories=("only",)) is None


@cases("uri", "linker", "owner")
def test_what_was_linked_to_is_the_linking_servers_unless_only_others_list_it(
    uri: str, linker: str, owner: str | None
) -> None:
    assert located(BOTH, uri, {uri: linker}) == (None if owner is None else (owner, uri))


def test_a_uri_with_the_beginning_or_a_fragment_of_another_servers_is_not_that_one() -> None:
    of = catalog(resources("a", X), resources("b", "file:///x/deeper", "file:///x#part"))
    assert located(of, "file:///x/deeper") == ("b", "file:///x/deeper")
    assert located(of, "file:///x#part") == ("b", "file:///x#part")
    assert located(of, "file:///x#other") is None
    assert located(of, "file:///x/deeper/still") is None


def test_the_template_with_the_longest_literal_beginning_wins_and_never_against_a_listed_uri() -> None:
    of = catalog(
        templates("a", "file:///{+path}"), templates("b", "file:///b/{name}"), resources("c", "file:///b/c")
    )
    assert located(of, "file:///b/x") == ("b", "file:///b/x")
    assert located(of, "file:///b/x/y") == ("a", "file:///b/x/y")
    assert located(of, "file:///b/c") == ("c", "file:///b/c")


def test_a_template_that_fits_everything_counts_if_it_is_the_only_one_of_its_sort() -> None:
    everything = catalog(templates("a", "{+uri}"), resources("b", X), templates("b", "db://{table}"))
    assert located(everything, X) == ("b", X)
    assert located(everything, "db://t") == ("b", "db://t")
    assert located(everything, "other://t") == ("a", "other://t")
    two = after(everything, [templates("c", "{scheme}://{+rest}")])
    assert located(two, "other://t") is None


def test_what_nobody_knows_is_the_only_servers_that_has_resources() -> None:
    one = catalog(resources("a", X), resources("b", declared=False))
    assert located(one, "file:///unknown") == ("a", "file:///unknown")
    assert located(BOTH, "file:///unknown") is None
    assert located(one, "mcpd://nobody/x") is None, "what names a server is no other's"


def test_what_is_switched_off_cannot_be_read_by_any_way() -> None:
    of = catalog(resources("a", X, "file:///y"), templates("a", "db://{table}", "db://{+all}"))
    off = after(of, [switched(f"a/resource:{X}", "a/template:db://{+all}")])
    for uri in (X, mcpd_uri("a", X)):
        assert located(of, uri) == ("a", X)
        assert located(off, uri) is None
        assert located(off, uri, {uri: "a"}) is None
    assert located(off, "file:///y") == ("a", "file:///y")
    assert located(off, "db://t") == ("a", "db://t"), "another template still fits"
    assert located(off, "db://t/u") is None
    assert located(off, "mcpd://a/db%3A%2F%2Ft%2Fu") is None
    assert located(after(of, [switched("a")]), X, {X: "a"}) is None


def test_a_profile_without_resources_reads_none() -> None:
    assert located(BOTH, X, {X: "a"}, resources=False) is None


TEXT = st.sampled_from(
    ["x", "file:///x", "file:///x#f", "file:///x/y", "mcpd://a/x", "mcpd://b/file%3A%2F%2F%2Fx"]
)
TEMPLATES = st.sampled_from(["file:///{p}", "file:///{+p}", "{+any}", "{s}://{r}", "mcpd://a/{p}", "mcpd{+p}"])
SERVER = st.sampled_from(NAMES)
FACTS = st.lists(
    st.one_of(
        st.builds(lambda server, uris: resources(server, *uris), SERVER, st.lists(TEXT, unique=True)),
        st.builds(lambda server, texts: templates(server, *texts), SERVER, st.lists(TEMPLATES, unique=True)),
    ),
    max_size=8,
)


@given(FACTS)
def test_every_shown_uri_is_read_from_the_server_that_lists_it(facts: list[Fact]) -> None:
    of = catalog(*facts)
    offer = Offer(of, Profile(name="p"))
    shown = offer.definitions(Kind.RESOURCE)
    assert len(shown) == sum(map(len, of.lists[Kind.RESOURCE].values()))
    for uri, offered in shown.items():
        assert locate(of, offer, uri, {}) == (offered.definition.server, offered.definition.name)


@given(FACTS, TEXT, SERVER)
def test_what_others_list_never_goes_to_who_claims_it(facts: list[Fact], uri: str, claims: str) -> None:
    of = catalog(*facts)
    listing = [name for name in NAMES if uri in of.lists[Kind.RESOURCE].get(name, ())]
    found = located(of, uri, {uri: claims})
    if listing and not is_mcpd(uri):
        assert found is not None
        assert found[0] in listing
    assert located(of, mcpd_uri(claims, uri)) == (claims, uri)


# --- templates fit what they can become, and none costs more than its length ---------------------------------


def fits(text: str, uri: str) -> bool:
    return Template(server="s", text=text).fits(Letters(uri))


@cases("text", "uri", "whether")
def test_a_template_fits_what_it_can_become(text: str, uri: str, whether: bool) -> None:
    assert fits(text, uri) is whether


PARTS = st.one_of(
    st.sampled_from(["{a}", "{+a}", "{/a}", "{?a}", "{#a}", "{.a}"]), st.text("ab/?#.", max_size=3)
)
CLASSES = {"{a}": "[^/?#]*", "{.a}": "[^/?#]*", "{+a}": ".*", "{#a}": ".*", "{/a}": "[^?#]*", "{?a}": "[^#]*"}


@given(st.lists(PARTS, max_size=5), st.text("ab/?#.", max_size=10))
def test_all_ways_are_followed_as_a_regex_would(parts: list[str], uri: str) -> None:
    regex = "".join(CLASSES.get(part, re.escape(part)) for part in parts)
    assert fits("".join(parts), uri) is (re.fullmatch(regex, uri, re.DOTALL) is not None)


def test_the_longest_literal_beginning_comes_first_and_a_tie_keeps_the_order() -> None:
    texts = ["{+any}", "x://{a}", "x://b/{c}", "x://{+d}", "x://b/c{+e}"]
    templates = [Template(server=str(place), text=text) for place, text in enumerate(texts)]
    assert [each.server for each in fitting(templates, "x://b/c")] == ["4", "2", "3", "0"]


def test_a_template_that_was_made_to_take_long_does_not() -> None:
    """A regex would try 2,000 over 100 ways to part these letters."""
    text = "x:" + "{+a}b" * 100 + "c"
    assert not fits(text, "x:" + "b" * 2000)
    assert fits(text, "x:" + "b" * 2000 + "c")


def test_no_more_is_compared_than_the_bounds_say() -> None:
    short = "x:{+a}"
    many = [Template(server=str(place), text=short) for place in range(MAX_COMPARED)]
    assert len(list(fitting(many, "x:y"))) == MAX_COMPARED // len(short)
    assert list(fitting(many, "x:" + "y" * MAX_URI)) == []


def test_long_templates_leave_room_for_those_of_others() -> None:
    long = "x:" + "{+a}" * 1000
    many = [Template(server="long", text=long) for _ in range(1000)]
    found = list(fitting([*many, Template(server="short", text="x:{+a}")], "x:y"))
    assert [each.server for each in found] == ["long"] * (MAX_COMPARED // len(long)) + ["short"]
