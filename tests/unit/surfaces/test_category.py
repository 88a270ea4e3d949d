"""Seed 001 point by point: two tools, categories known from the start, calls passed on unopened."""

from typing import Any

import attrs
import msgspec
import pytest

from daemon.catalog.snapshot import Catalog
from daemon.causes import Cause
from daemon.errors import SchemaFetchError, ToolDisabled, UnknownCategory, UnknownTool
from daemon.facts import DefinitionsListed, SelfDescription, StatusChanged, Switched
from daemon.states import ServerState
from daemon.surfaces.answers import MAX_LINE, MAX_LINES
from daemon.surfaces.category import CALL, GET, CategorySurface
from daemon.surfaces.surface import AwaitListing, Forward, View
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, failed, known, listed, servers, status, tool, up
from tests.unit.surfaces.samples import INDEX_CHARACTERS, NOW, act, answer, forwarded, refused, view_of

SURFACE = CategorySurface()

# As in the seed's §4.1 and §11: bare and prefixed names, a new description, and two tools switched off.
SEED: dict[str, Any] = {
    "mcpServers": servers("serena"),
    "categories": {
        "fs": {
            "description": "ファイル/ディレクトリの読み書きと検索。",
            "server": "serena",
            "skill": "read before you write",
            "tools": {
                "includeNames": ["mcp__serena__read_file", "list_dir", "serena/replace_regex"],
                "overrides": {
                    "mcp__serena__read_file": {"enabled": True, "description": "範囲指定を推奨。"},
                    "mcp__serena__execute_shell_command": {"enabled": False},
                },
            },
        },
        "code": {
            "description": "シンボル探索とコード編集。",
            "server": "serena",
            "tools": {
                "includeNames": ["find_symbol", "mcp__serena__replace_symbol_body", "find_ghost"],
                "overrides": {"replace_symbol_body": {"enabled": False}, "no_such": {"enabled": False}},
            },
        },
    },
}
READ_FILE = tool(
    "serena",
    "read_file",
    title="Read",
    description="Reads a file.",
    inputSchema={"type": "object", "properties": {"path": {"type": "string"}}},
    outputSchema={"type": "object"},
    annotations={"readOnlyHint": True},
    _meta={"x": 1},
)
SERENA = (
    READ_FILE,
    *known(
        "serena", "list_dir", "replace_regex", "find_symbol", "replace_symbol_body", "execute_shell_command"
    ).values(),
)
BEFORE = catalog_of(SEED)
UP = after(BEFORE, [status("serena"), listed("serena", *SERENA)])
ALL = ["read_file", "list_dir", "replace_regex"]
"""The enabled tools of the category `fs`."""


def view(catalog: Catalog = UP, profile: str = "default") -> View:
    return view_of(catalog, profile)


def describe(
    category: str, catalog: Catalog = UP, *, names: list[str] | None = None, patient: bool = True
) -> Any:
    """What `get-category-tools` says."""
    asked = {"category": category} if names is None else {"category": category, "toolNames": names}
    return answer(SURFACE, view(catalog), GET, asked, patient=patient)


def calling(category: str, name: str) -> dict[str, object]:
    """The arguments of `call-category-tool`."""
    return {"category": category, "name": name, "args": {}}


def call(category: str, name: str, catalog: Catalog = UP, *, patient: bool = True) -> Forward:
    """Where `call-category-tool` goes."""
    return forwarded(SURFACE, view(catalog), CALL, calling(category, name), patient=patient)


def definitions(catalog: Catalog = UP, profile: str = "default") -> dict[str, Any]:
    entries = map(msgspec.json.decode, SURFACE.list_tools(view(catalog, profile)))
    return {entry["name"]: entry for entry in entries}


# --- §2, §10.1, §10.6: two tools, and the categories in a description ----------------------------------------


@pytest.mark.parametrize("catalog", [BEFORE, UP], ids=["before-any-server", "up"])
def test_the_description_names_every_category_with_its_description_whether_or_not_its_server_is_up(
    catalog: Catalog,
) -> None:
    text = definitions(catalog)[GET]["description"]
    assert "- fs: ファイル/ディレクトリの読み書きと検索。\n- code: シンボル探索とコード編集。" in text
    # Once is enough: the instructions only say where they are.
    assert GET in SURFACE.instructions(view(catalog))
    assert "fs" not in SURFACE.instructions(view(catalog))


def test_two_tools_are_described_with_their_steps_and_arguments_and_no_tool_of_a_server() -> None:
    get, call_ = (definitions()[name]["inputSchema"] for name in (GET, CALL))
    assert (get["required"], list(get["properties"])) == (["category"], ["category", "toolNames"])
    assert call_["required"] == list(call_["properties"]) == ["category", "name", "args"]
    assert call_["properties"]["args"]["type"] == "object"
    assert all(definitions()[name]["_meta"] == {"anthropic/alwaysLoad": True} for name in (GET, CALL))
    text = definitions()[CALL]["description"]
    assert text.index("1. ") < text.index(GET) < text.index("2. ")
    assert b"read_file" not in b"".join(SURFACE.list_tools(view()))


def test_a_client_sees_only_the_categories_of_its_profile_each_on_one_line() -> None:
    catalog = catalog_of({**SEED, "profiles": {"p": {"categories": ["code"]}}})
    text = definitions(catalog, "p")[GET]["description"]
    assert "- code: " in text
    assert "- fs: " not in text
    error = refused(SURFACE, view(catalog, "p"), GET, {"category": "fs"}, UnknownCategory)
    assert error.details["available"] == ["code"]
    assert "no categories" in definitions(catalog_of({}))[GET]["description"]
    long = {"c": {"description": "one\n\n  two\r\n- three", "server": "s"}}
    lines = definitions(catalog_of({"mcpServers": servers("s"), "categories": long}))[GET]["description"]
    assert "- c: one two - three" in lines.splitlines()


@pytest.mark.parametrize(
    ("count", "length"),
    [(1, 10_000), (MAX_LINES, 5), (MAX_LINES + 1, 5), (500, 10), (500, 10_000), (45, 200), (1000, 0)],
)
def test_the_list_of_categories_is_bounded_in_lines_and_size_and_says_what_it_left_out(
    count: int, length: int
) -> None:
    categories = {f"c{number}": {"description": "x" * length, "server": "s"} for number in range(count)}
    text = definitions(catalog_of({"mcpServers": servers("s"), "categories": categories}))[GET]["description"]
    lines = [line for line in text.splitlines() if line.startswith("- c")]
    assert 1 <= len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= MAX_LINE
    assert sum(len(line) + 1 for line in lines) <= INDEX_CHARACTERS
    assert (f"- and {count - len(lines)} more" in text) is (len(lines) < count)


@pytest.mark.parametrize(
    "fact",
    [
        status("serena", ServerState.CRASHLOOP, reason="exited"),
        status("serena", incarnation=2),
        failed("serena"),
        listed("serena", "read_file"),
    ],
)
def test_the_list_of_tools_is_the_same_bytes_whatever_a_server_does(
    fact: StatusChanged | DefinitionsListed,
) -> None:
    assert SURFACE.list_tools(view(after(UP, [fact]))) == SURFACE.list_tools(view(UP))
    assert SURFACE.list_tools(view(UP)) == SURFACE.list_tools(attrs.evolve(view(BEFORE), now=lambda: NOW + 60))


# --- §2.1, §5.2, §10.2: get-category-tools -------------------------------------------------------------------


def test_a_tool_is_described_as_its_server_does_with_its_hash_unless_somebody_describes_it_otherwise() -> None:
    described = describe("fs")["tools"]
    assert described["list_dir"]["description"] == ""
    assert described["read_file"] == {
        "description": "範囲指定を推奨。",
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "schemaHash": READ_FILE.schema_hash[:12],
    }
    assert describe("serena", up(serena=[READ_FILE]))["tools"]["read_file"]["description"] == "Reads a file."


def test_the_meta_tells_category_server_epoch_and_skill() -> None:
    assert describe("fs")["meta"] == {
        "category": "fs",
        "sourceServer": "serena",
        "epoch": 1,
        "skill": "read before you write",
    }
    assert describe("fs", after(UP, [listed("serena", "read_file")]))["meta"]["epoch"] == 2
    assert list(describe("fs", after(UP, [failed("serena")]))["tools"]) == ALL


@cases("names", "tools")
def test_only_the_tools_asked_for_are_described(names: list[str] | None, tools: list[str]) -> None:
    answer = describe("fs", names=names)
    assert list(answer["tools"]) == tools
    assert "unavailableTools" not in answer["meta"]


def test_names_that_cannot_be_called_are_told_besides_those_that_can() -> None:
    answer = describe("code", names=["find_symbol", "find_ghost", "replace_symbol_body", "nonsense"])
    assert list(answer["tools"]) == ["find_symbol"]
    assert answer["meta"]["unavailableTools"] == ["find_ghost", "replace_symbol_body", "nonsense"]
    assert describe("code")["meta"]["unavailableTools"] == ["find_ghost"]
    assert describe("code", names=["replace_symbol_body"])["tools"] == {}


def test_asking_for_nothing_but_unknown_tools_is_refused_with_the_closest_names() -> None:
    error = refused(SURFACE, view(), GET, {"category": "fs", "toolNames": ["raed_file", "x"]}, UnknownTool)
    assert "raed_file, x" in error.message
    assert "Did you mean read_file?" in error.message
    assert error.details["closest"] == ["read_file"]


@pytest.mark.parametrize("name", [GET, CALL])
def test_an_unknown_category_is_refused_with_the_categories_that_exist(name: str) -> None:
    asked = {"category": "cod", "name": "x", "args": {}} if name == CALL else {"category": "cod"}
    error = refused(SURFACE, view(), name, asked, UnknownCategory)
    assert error.message == "there is no category 'cod'. Did you mean code? There are: fs, code."
    assert error.details == {"category": "cod", "available": ["fs", "code"]}


# --- §6: a server that is down -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state", [ServerState.BACKOFF, ServerState.CRASHLOOP, ServerState.FAILED, ServerState.STOPPED]
)
def test_a_server_that_is_down_is_described_from_the_catalog_with_its_tools_marked(state: ServerState) -> None:
    down = after(
        UP, [status("serena", state, reason="exited", since=NOW - 5, attempt=2, next_retry_at=NOW + 1.5)]
    )
    because = after(UP, [status("serena", state, cause=Cause.EXITED)])
    assert describe("fs", because)["meta"]["unavailableServers"]["serena"]["cause"] == "exited"
    answer = describe("fs", down)
    assert list(answer["tools"]) == answer["meta"]["unavailableTools"] == ALL
    said = {"state": state, "reason": "exited", "since": NOW - 5, "attempt": 2, "nextRetryInMs": 1500}
    assert answer["meta"]["unavailableServers"] == {"serena": said}
    assert describe("fs", down, names=["list_dir"])["meta"]["unavailableTools"] == ["list_dir"]


@pytest.mark.parametrize(
    "state", [ServerState.STARTING, ServerState.STOPPED, ServerState.READY, ServerState.DORMANT]
)
def test_a_patient_caller_waits_for_a_list_that_may_still_come(state: ServerState) -> None:
    catalog = after(BEFORE, [status("serena", state)])
    assert act(SURFACE, view(catalog), GET, {"category": "fs"}) == AwaitListing(servers=("serena",))


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize(
    "facts",
    [
        [status("serena", ServerState.BACKOFF)],
        [status("serena", ServerState.FAILED)],
        [status("serena", ServerState.DISABLED)],
        [status("serena"), failed("serena"), status("serena", ServerState.BACKOFF)],
    ],
)
def test_nobody_waits_for_the_list_of_a_server_that_is_down(
    facts: list[StatusChanged], *, patient: bool
) -> None:
    answer = describe("fs", after(BEFORE, facts), patient=patient)
    assert (answer["tools"], answer["meta"]["unavailableTools"]) == ({}, ALL)
    assert answer["meta"]["unavailableServers"]["serena"]["state"] == facts[-1].status.state
    starting = after(BEFORE, [status("serena", ServerState.STARTING)])
    assert describe("fs", starting, patient=False)["meta"]["unavailableTools"] == ALL


def test_only_the_first_page_of_a_category_has_the_instructions_of_its_server() -> None:
    large = [tool("a", f"t{number}", description="x" * 100) for number in range(4000)]
    told = attrs.evolve(listed("a", *large), said=SelfDescription(instructions="Use it."))
    many = view(after(up(a=[]), [told]))
    first = answer(SURFACE, many, GET, {"category": "a"})["meta"]
    assert first["instructions"] == {"a": "Use it."}
    assert "instructions" not in answer(SURFACE, many, GET, first["next"]["arguments"])["meta"]


@pytest.mark.parametrize("patient", [True, False])
def test_a_server_that_is_up_but_never_listed_is_a_schema_fetch_error(*, patient: bool) -> None:
    catalog = after(BEFORE, [status("serena"), failed("serena", "timed out after 10 s")])
    error = refused(SURFACE, view(catalog), GET, {"category": "fs"}, SchemaFetchError, patient=patient)
    assert "timed out after 10 s" in error.message
    assert "mcpd restart serena" in error.message
    assert error.details == {"server": "serena"}


# --- §2.2, §5.3, §10.3 to 10.5: call-category-tool -----------------------------------------------------------


@pytest.mark.parametrize("name", ["read_file", "mcp__serena__read_file", "serena/read_file"])
def test_a_call_goes_to_the_server_under_the_tools_own_name(name: str) -> None:
    action = call("fs", name)
    assert (action.server, action.name, action.label) == ("serena", "read_file", "fs/read_file")


@pytest.mark.parametrize("patient", [True, False])
def test_a_named_tool_may_be_called_before_its_schema_is_loaded(*, patient: bool) -> None:
    catalog = after(BEFORE, [status("serena", ServerState.BACKOFF)])
    action = call("fs", "mcp__serena__read_file", catalog, patient=patient)
    assert action.name == "read_file"


@pytest.mark.parametrize("catalog", [BEFORE, UP], ids=["before-any-server", "up"])
def test_no_tool_of_a_server_that_is_switched_off_is_called(catalog: Catalog) -> None:
    off = after(catalog, [Switched(off=frozenset({("serena", "")}))])
    error = refused(SURFACE, view(off), CALL, calling("fs", "read_file"), ToolDisabled)
    assert "`mcpd enable serena`" in error.message


def test_a_name_that_is_switched_off_and_that_its_server_does_not_have_is_unknown() -> None:
    refused(SURFACE, view(BEFORE), CALL, calling("code", "no_such"), ToolDisabled)
    refused(SURFACE, view(UP), CALL, calling("code", "no_such"), UnknownTool)
    for catalog in (BEFORE, UP):
        refused(SURFACE, view(catalog), CALL, calling("fs", "execute_shell_command"), ToolDisabled)


@pytest.mark.parametrize("name", ["find_symbol", "raed_file", "mcp__other__read_file", ""])
@pytest.mark.parametrize("catalog", [BEFORE, UP], ids=["before-any-server", "up"])
def test_a_tool_that_the_category_does_not_hold_is_unknown(name: str, catalog: Catalog) -> None:
    error = refused(SURFACE, view(catalog), CALL, calling("fs", name), UnknownTool)
    assert repr(name) in error.message
    assert error.details["tool"] == name
    if (name, catalog) == ("raed_file", UP):
        assert error.details["closest"] == ["read_file"]
        assert "There are: read_file, list_dir, replace_regex." in error.message
    ghost = refused(SURFACE, view(), CALL, calling("code", "find_ghost"), UnknownTool)
    assert "There are: find_symbol." in ghost.message


def test_a_quarantined_tool_is_refused_with_the_reason() -> None:
    bad = listed("serena", "list_dir", quarantined={"read_file": "has no inputSchema"})
    catalog = after(BEFORE, [status("serena"), bad])
    error = refused(SURFACE, view(catalog), CALL, calling("fs", "mcp__serena__read_file"), UnknownTool)
    assert "cannot be used: has no inputSchema" in error.message


# --- categories without names: the server's list decides -----------------------------------------------------

OPEN: dict[str, Any] = {
    "mcpServers": servers("s"),
    "categories": {
        "all": {"description": "d", "server": "s", "tools": {"overrides": {"shell": {"enabled": False}}}},
        "some": {"description": "d", "server": "s", "tools": {"includePatterns": ["read_*"]}},
        "most": {"description": "d", "server": "s", "tools": {"excludePatterns": ["/^sh/"]}},
    },
}
OPEN_BEFORE = catalog_of(OPEN)
OPEN_UP = after(OPEN_BEFORE, [status("s"), listed("s", "shell", "read_file")])


def test_a_call_to_an_open_category_waits_for_the_first_list_or_leaves_the_judgement_to_the_server() -> None:
    waits = act(SURFACE, view(OPEN_BEFORE), CALL, calling("all", "read_file"))
    assert waits == AwaitListing(servers=("s",), calling=True)
    action = call("all", "mcp__s__read_file", OPEN_BEFORE, patient=False)
    assert (action.server, action.name) == ("s", "read_file")
    call("some", "read_file", OPEN_UP)


@pytest.mark.parametrize("category", ["all", "some", "most"])
@pytest.mark.parametrize("name", ["shell", "mcp__s__shell", "s/shell"])
@pytest.mark.parametrize("catalog", [OPEN_BEFORE, OPEN_UP], ids=["before-any-server", "up"])
def test_a_tool_that_an_open_category_keeps_out_is_never_called(
    category: str, name: str, catalog: Catalog
) -> None:
    with pytest.raises((ToolDisabled, UnknownTool)):
        call(category, name, catalog, patient=False)


def test_a_tool_that_the_profile_excludes_is_not_called_before_its_server_has_listed() -> None:
    catalog = catalog_of({**OPEN, "profiles": {"p": {"excludedTools": ["s/read_file"]}}})
    refused(SURFACE, view(catalog, "p"), CALL, calling("all", "read_file"), ToolDisabled)


# --- categories across servers -------------------------------------------------------------------------------

CROSS: dict[str, Any] = {
    "mcpServers": servers("a", "b"),
    "categories": {
        "both": {"description": "d", "tools": {"includeNames": ["a/search", "a/open", "b/search"]}},
        "found": {"description": "d", "tools": {"includePatterns": ["*"]}},
        "borrowed": {"description": "d", "server": "a", "tools": {"includeNames": ["open", "b/shut"]}},
    },
}
CROSS_BEFORE = catalog_of(CROSS)
CROSS_UP = after(
    CROSS_BEFORE, [status("a"), status("b"), listed("a", "search", "open"), listed("b", "search", "shut")]
)


@cases("name", "server", "tool_name")
def test_tools_of_one_name_on_two_servers_are_told_apart(name: str, server: str, tool_name: str) -> None:
    action = call("both", name, CROSS_UP)
    assert (action.server, action.name) == (server, tool_name)


def test_a_category_across_servers_is_described_with_all_of_them() -> None:
    answer = describe("both", CROSS_UP)
    assert list(answer["tools"]) == ["search", "open", "b/search"]
    assert answer["meta"]["sourceServer"] == "a, b"
    assert answer["meta"]["epoch"] == 2


def test_a_patient_caller_waits_for_all_servers_of_a_category() -> None:
    for category in ("both", "found"):
        assert act(SURFACE, view(CROSS_BEFORE), GET, {"category": category}) == AwaitListing(servers=("a", "b"))
    one = after(CROSS_BEFORE, [status("a"), listed("a", "search")])
    assert act(SURFACE, view(one), GET, {"category": "both"}) == AwaitListing(servers=("b",))
