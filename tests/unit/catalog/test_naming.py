"""Names of tools that stand side by side: stable, whoever comes up when."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog import naming
from daemon.catalog.naming import SPELLINGS, is_mcpd, mcpd_uri, read_mcpd_uri
from daemon.catalog.snapshot import Catalog, with_settled_names
from daemon.facts import NamesRecalled
from daemon.model import GivenName, Kind
from daemon.states import ServerState
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status

BEFORE = catalog_of({"mcpServers": servers("a", "b", "c")})
STARTING = [status(name, ServerState.STARTING) for name in ("a", "b", "c")]


def names(catalog: Catalog) -> dict[str, list[str]]:
    """What the tools of each server are called."""
    return {
        entry.name: [catalog.names.name_of((entry.name, tool)) for tool in entry.tools]
        for entry in catalog.servers.values()
        if entry.tools is not None
    }


@pytest.mark.parametrize("own", ["ui://app/page.html", "skill://refunds/SKILL.md", "UI:///x", "ui://mcpd+b/x"])
def test_a_qualified_uri_of_an_app_or_skill_keeps_its_scheme_which_hosts_require(own: str) -> None:
    uri = mcpd_uri("a", own)
    scheme, _, rest = own.partition("://")
    assert uri == f"{scheme}://mcpd+a/{rest}"
    assert is_mcpd(uri)
    assert read_mcpd_uri(uri) == ("a", own)
    assert read_mcpd_uri(uri.replace("mcpd+a", "MCPD+A")) == ("a", own), "hosts are lowered, or not"


@pytest.mark.parametrize("uri", ["ui://a/page.html", "ui://mcpd+", "ui://mcpd+a", "skill://mcpd+A b/x"])
def test_other_uris_of_apps_and_skills_name_no_server(uri: str) -> None:
    assert read_mcpd_uri(uri) is None


def test_only_the_name_that_two_servers_share_is_qualified() -> None:
    catalog = after(BEFORE, [listed("a", "x", "only"), listed("b", "x", "other")])
    assert names(catalog) == {"a": ["x", "only"], "b": ["b__x", "other"]}


def test_of_servers_that_come_up_together_the_first_of_the_configuration_has_the_name() -> None:
    catalog = after(BEFORE, [*STARTING, listed("c", "x"), listed("b", "x"), listed("a", "x")])
    assert names(catalog) == {"a": ["x"], "b": ["b__x"], "c": ["c__x"]}


def test_a_name_never_comes_to_mean_another_tool_also_when_its_owner_drops_it() -> None:
    catalog = after(BEFORE, [listed("a", "x"), listed("b", "x"), listed("a", "y")])
    assert names(catalog) == {"a": ["y"], "b": ["b__x"]}
    assert catalog.names.key_of("x", catalog.servers) == ("a", "x")


SHARED = after(BEFORE, [listed("a", "x", "own"), listed("b", "x", "a__own")])


@cases("written", "key")
def test_a_tool_is_found_under_every_spelling_of_its_name(written: str, key: list[str] | None) -> None:
    assert SHARED.names.key_of(written, SHARED.servers) == (key and tuple(key))


@pytest.mark.parametrize("own", ["b/x", "b__x", "mcp__b__x", "mcp__mcpd__b__x", "mcp__mcpd__b/x"])
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_no_tool_takes_over_what_refers_to_another_servers(own: str, order: tuple[str, str]) -> None:
    lists = {"a": listed("a", own), "b": listed("b", "x")}
    catalog = after(BEFORE, [lists[name] for name in order])
    assert names(catalog) == {"a": [f"a__{own}"], "b": ["x"]}
    assert catalog.names.key_of(own, catalog.servers) == ("b", "x")


def test_a_name_is_given_up_that_reads_as_the_tool_of_a_server_that_comes_to_the_configuration() -> None:
    alone = naming.assign(naming.NO_NAMES[Kind.TOOL], [claims("a", "b/x", "y")]).settled()
    assert alone.name_of(("a", "b/x")) == "b/x"
    unlisted = naming.assign(alone, [claims("a", "b/x", "y"), claims("b", pending=True)])
    assert unlisted.name_of(("a", "b/x")) == "a__b/x"
    assert unlisted.name_of(("a", "y")) == "y"
    assert unlisted.key_of("b/x", {"a", "b"}) == ("b", "x")


@pytest.mark.parametrize(("count", "kept"), [(naming.MAX_REMEMBERED, True), (naming.MAX_REMEMBERED + 1, False)])
def test_names_that_nobody_lists_are_not_remembered_for_ever(count: int, *, kept: bool) -> None:
    gone = [f"gone{number}" for number in range(count)]
    names = naming.assign(naming.NO_NAMES[Kind.TOOL], [claims("a", *gone)])
    assigned = naming.assign(names, [claims("a", "x")])
    assert assigned.owners["x"] == ("a", "x")
    assert ("gone0" in assigned.owners) is kept


# --- from one life to the next -------------------------------------------------------------------------------

OF_B = GivenName(name="x", key=("b", "x"), since=500.0)


def test_a_name_of_an_earlier_life_stays_whoever_stands_first() -> None:
    catalog = after(BEFORE, [NamesRecalled(names=(OF_B,)), *STARTING, listed("a", "x"), listed("b", "x")])
    assert names(catalog) == {"a": ["a__x"], "b": ["x"]}
    assert catalog.names.since(("b", "x")) == 500.0
    assert catalog.names.since(("a", "x")) == catalog.begun == 1000.0


def test_a_name_whose_server_is_not_configured_any_more_is_free_and_new_to_everybody() -> None:
    gone = GivenName(name="x", key=("gone", "x"), since=500.0)
    catalog = after(BEFORE, [NamesRecalled(names=(gone,)), listed("a", "x")])
    assert names(catalog) == {"a": ["x"]}
    assert catalog.names.since(("a", "x")) == 1000.0


def test_a_name_of_another_daemons_server_is_not_to_be_had() -> None:
    theirs = GivenName(name="x", key=("theirs", "x"), since=500.0)
    catalog = after(BEFORE, [NamesRecalled(names=(theirs,), shared=True), listed("a", "x")])
    assert names(catalog) == {"a": ["a__x"]}


def test_what_was_given_in_this_life_stays_when_the_memory_comes_late() -> None:
    given = after(BEFORE, [listed("a", "x", "y")])
    catalog = after(given, [NamesRecalled(names=(OF_B, GivenName(name="y", key=("a", "y"), since=7.0)))])
    assert names(after(catalog, [listed("b", "x")])) == {"a": ["x", "y"], "b": ["b__x"]}
    assert catalog.names.since(("a", "y")) == 7.0


def test_what_nobody_was_shown_yet_gives_way_to_the_memory() -> None:
    open_yet = after(BEFORE, [*STARTING, listed("c", "x")])
    catalog = after(open_yet, [NamesRecalled(names=(OF_B,))])
    assert names(catalog) == {"c": ["c__x"]}


def test_once_names_were_forgotten_no_new_one_is_known_to_anybody() -> None:
    many = naming.assign(naming.NO_NAMES[Kind.TOOL], [claims("a", *map(str, range(naming.MAX_REMEMBERED + 1)))])
    assert many.since(("a", "0")) == 0
    assert naming.assign(many, [claims("b", "0")]).since(("b", "0")) == inf


# --- no two tools ever share a name --------------------------------------------------------------------------


def claims(server: str, *tools: str, pending: bool = False) -> naming.Claims:
    return naming.Claims(server=server, own=tools, pending=pending)


def test_a_name_that_was_shown_does_not_go_to_a_server_that_comes_up_later() -> None:
    early = with_settled_names(after(BEFORE, [*STARTING, listed("b", "x")]))
    catalog = after(early, [listed("a", "x", "y"), listed("c", "y")])
    assert names(catalog) == {"a": ["a__x", "y"], "b": ["x"], "c": ["c__y"]}


TOOLS = st.lists(
    st.sampled_from(["x", "a__x", "b__x", "a/x", "b/x", "mcp__a__x", "b__a__x", "a__b__x", "m", "a__m"]),
    unique=True,
    max_size=6,
)


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["a", "b", "a__b", "b__a"]), TOOLS, st.booleans()),
            unique_by=lambda c: c[0],
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_names_are_given_once_found_again_and_never_rebound(
    steps: list[list[tuple[str, list[str], bool]]], shown: bool
) -> None:
    now = naming.NO_NAMES[Kind.TOOL]
    servers = {"a", "b", "a__b", "b__a"}
    for step in steps:
        before = now
        others = [claims(server) for server in sorted(servers - {server for server, _, _ in step})]
        here = [claims(server, *tools, pending=p) for server, tools, p in step]
        now = naming.assign(now, [*here, *others], {"m"})
        for server, tools, _ in step:
            for key in ((server, tool) for tool in tools):
                for name in (now.name_of(key), now.name_beside(key, {"m"})):
                    assert now.key_of(name, servers) == key
        if shown:
            now = now.settled()
        for name, key in before.owners.items():
            assert name in now.owners or key in before.provisional
            assert now.owners.get(name) in {key, None} or key in before.provisional


# --- spelling of names and URIs ------------------------------------------------------------------------------


SERVERS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,12}", fullmatch=True)
URI_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="{"), min_size=1)


@given(SERVERS, st.one_of(URI_TEXT, URI_TEXT.map(lambda text: f"file:///{text}")))
def test_a_uri_comes_back_from_its_qualified_form(server: str, uri: str) -> None:
    assert read_mcpd_uri(mcpd_uri(server, uri)) == (server, uri)


@cases("value", "own")
def test_what_a_client_makes_of_a_qualified_template_is_what_the_own_one_would_have_become(
    value: str, own: str
) -> None:
    shown = mcpd_uri("git", "file:///{path}")
    assert shown == "mcpd://git/file:///{path}"
    assert read_mcpd_uri(shown.replace("{path}", value)) == ("git", own)


@cases("uri")
def test_a_malformed_form_is_nobody_s(uri: str) -> None:
    assert read_mcpd_uri(uri) is None


def test_scheme_and_server_may_come_in_capitals_and_the_rest_is_as_written() -> None:
    assert read_mcpd_uri("MCPD://Git/file%3A%2F%2F%2FReadMe") == ("git", "file:///ReadMe")
    assert is_mcpd("McpD://x")


@cases("own", "first")
def test_a_uri_keeps_its_own_spelling_unless_it_is_none_or_reads_as_ours(own: str, first: str) -> None:
    assert next(SPELLINGS[Kind.RESOURCE].ways(("git", own))) == first


def test_a_name_that_reads_as_another_servers_misleads() -> None:
    servers = {"git", "web"}
    assert SPELLINGS[Kind.TOOL].misleads("web__search", "git", servers)
    assert SPELLINGS[Kind.TOOL].misleads("mcp__us__web__search", "git", servers)
    assert not SPELLINGS[Kind.TOOL].misleads("web__search", "web", servers)
    assert not SPELLINGS[Kind.TOOL].misleads("a__b", "git", servers)
