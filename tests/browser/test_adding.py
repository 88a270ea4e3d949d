"""Adding a server and the first run in Chromium: what a terminal does, without one."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.driving import (
    PHONE,
    Here,
    accessible,
    close_windows,
    console,
    expect_words,
    press,
    row,
    settled,
)
from tests.e2e.harness import Daemon, own_directory, scripted, started
from tests.pairwise import at_night
from tests.registries import LocalRegistry, registry
from tests.scripted_server import command
from tests.unit.sources.packing import manifest, packed
from tests.waiting import WAIT

SECRET = "typed-9dkq2m8xw1"
HERE_OR_NOT = pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
HERE_OR_AT_NIGHT = pytest.mark.parametrize("script", at_night([True, False], True))


FAR = {
    "name": "io.example/far",
    "version": "1.0.0",
    "description": "Finds far things.",
    "remotes": [{"type": "streamable-http", "url": "https://far.example/mcp"}],
}


@pytest.fixture(scope="module")
def published() -> Iterator[LocalRegistry]:
    with registry([FAR]) as made:
        yield made


@pytest.fixture(scope="module")
def own(browser: Browser, published: LocalRegistry) -> Iterator[Here]:
    """A daemon that gets more servers."""
    servers = {"git": scripted(tools=["git_log"]), "notes": scripted()}
    with console(browser, {"mcpServers": servers, "registries": [published.url]}) as opened:
        yield opened


@HERE_OR_NOT
def test_a_command_is_added_with_its_variables_and_its_page_has_its_tools(own: Here, *, script: bool) -> None:
    name = "fresh" if script else "plain"
    page = own.signed_in(java_script_enabled=script)
    page.goto(f"{own.address}/servers")
    page.get_by_role("link", name="Add a server").click()
    page.get_by_label("What to add").fill(shlex.join(command(tools=[f"{name}_tool"])))
    page.get_by_label("Name").fill(name)
    page.get_by_label("Variables").fill(f"API_KEY={SECRET}{name}")
    page.get_by_label("Models are offered").select_option("all")
    page.get_by_role("button", name="Add", exact=True).click()
    page.wait_for_url(f"{own.address}/servers/{name}")
    expect_words(page, f"added {name} to")
    page.get_by_role("link", name="Tools", exact=True).last.click()
    expect(row(page, f"{name}_tool")).to_have_count(1)
    text = own.daemon.config.read_text()
    assert json.loads(text)["mcpServers"][name]["trust"] == "all"
    assert SECRET not in text + own.daemon.said()


@HERE_OR_AT_NIGHT
def test_what_is_refused_stays_typed_but_for_its_values(own: Here, *, script: bool) -> None:
    page = own.signed_in(java_script_enabled=script, viewport=PHONE)
    page.goto(f"{own.address}/add")
    page.get_by_label("What to add").fill("uvx some-server --to 'a b'")
    page.get_by_label("Name").fill("git")
    page.get_by_label("Variables").fill(f"API_KEY={SECRET}")
    page.get_by_label("Sandbox").select_option("strict")
    press(page, "Add", "there is a server 'git'", exact=True)
    expect(page.get_by_label("What to add")).to_have_value("uvx some-server --to 'a b'")
    expect(page.get_by_label("Name")).to_have_value("git")
    expect(page.get_by_label("Sandbox")).to_have_value("strict")
    expect(page.get_by_label("Variables")).to_have_value("")
    expect_words(page, "Values are not shown again")
    assert SECRET not in page.content()
    if script:
        accessible(page)


def test_what_is_taken_back_was_not_added_and_failed(own: Here) -> None:
    page = own.signed_in()
    for what, said in ('{"absent": }', "the entry: 1 fault"), ("/absent", "absent does not come up (failed)"):
        page.goto(f"{own.address}/add")
        page.get_by_label("What to add").fill(what)
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text(said)
    expect(page.get_by_role("alert")).not_to_contain_text("added")
    expect(page.get_by_role("alert").get_by_role("link")).to_have_count(0)
    page.goto(f"{own.address}/audit")
    expect(page.locator("tbody tr", has_text="(console)").first).to_contain_text("failed")


def test_json_of_a_readme_is_checked_added_and_taken_back_on_a_page_found_by_keyboard(own: Here) -> None:
    program, *args = command(tools=["echo"])
    page = settled(own.signed_in())
    page.keyboard.press("Control+k")
    page.keyboard.type("add a")
    expect(page.locator("#found a").first).to_have_text("Add a server")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{own.address}/add")
    page.get_by_label("What to add").fill(
        '{"servers": {"pasted": {"command": "x", "restart": {"base": "often"}}}}'
    )
    expect(page.locator("#what-faults")).to_contain_text("restart.base")
    snippet = json.dumps({"servers": {"pasted": {"type": "stdio", "command": program, "args": args}}}, indent=2)
    page.get_by_label("What to add").fill(f"// as its README has it\n{snippet}")
    page.get_by_role("button", name="Add", exact=True).click()
    page.wait_for_url(f"{own.address}/servers/pasted")
    press(page, "Undo", "removed pasted from")
    assert "pasted" not in own.daemon.ask("status")["servers"]
    # What it has done is found by its name also when it is gone, and by the time.
    page.goto(f"{own.address}/events")
    page.get_by_label("Server").select_option("pasted")
    page.goto(f"{own.address}/audit")
    page.get_by_label("Up to").fill("2020-01-01T00:00")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(0)
    page.get_by_label("Up to").fill("")
    page.get_by_label("From").fill("2020-01-01T00:00")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr").first).to_be_visible()


def test_a_bundle_is_shown_first_and_added_by_a_second_button(own: Here) -> None:
    program, *args = command(tools=["echo"])
    launch = {"command": program, "args": args, "env": {"KEY": "${user_config.key}"}}
    key = {"type": "string", "title": "Key", "description": "of yours", "required": True, "sensitive": True}
    file = own.daemon.directory / "tool.mcpb"
    described = manifest(mcp_config=launch, user_config={"key": key}, description="A tool")
    file.write_bytes(packed({"manifest.json": json.dumps(described), "server/index.js": ""}))
    page = own.signed_in()
    page.goto(f"{own.address}/add")
    page.get_by_label("What to add").fill(str(file))
    page.get_by_label("Name").fill("bundled")
    page.get_by_label("Variables").fill(f"key={SECRET}")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("heading", name="This would be added")).to_be_visible()
    expect_words(page, "A tool")
    assert SECRET not in page.content()
    accessible(page)
    assert "bundled" not in own.daemon.ask("status")["servers"]
    page.get_by_role("button", name="Add it").click()
    page.wait_for_url(f"{own.address}/servers/bundled")
    entry = json.loads(own.daemon.config.read_text())["mcpServers"]["bundled"]
    assert (entry["trust"], entry["sandbox"]) == ("none", "home")
    assert SECRET not in own.daemon.config.read_text()


@HERE_OR_AT_NIGHT
def test_what_a_registry_offers_is_added_as_shown(own: Here, published: LocalRegistry, *, script: bool) -> None:
    published.documents[:] = [{"name": 7}]
    page = own.signed_in(java_script_enabled=script)
    page.goto(f"{own.address}/add?q=far")
    expect(page.get_by_role("alert")).to_contain_text(published.url)
    published.documents[:] = [FAR]
    page.get_by_role("link", name="Try again").click()
    page.get_by_role("searchbox", name="Words").fill("nothing-is-called-so")
    press(page, "Search the registries", "no server matches")
    page.get_by_role("searchbox", name="Words").fill("far things")
    page.keyboard.press("Enter")
    expect_words(page, "Finds far things.")
    if script:
        accessible(settled(page))
    page.get_by_role("button", name="Add io.example/far").click()
    expect(page.get_by_role("heading", name="This would be added")).to_be_visible()
    expect_words(page, "connects to https://far.example/mcp")
    published.documents[:] = [
        {**FAR, "remotes": [{"type": "streamable-http", "url": "https://evil.example/mcp"}]}
    ]
    press(page, "Add it", "io.example/far differs from the shown one: now version 1.0.0")
    assert "far" not in json.loads(own.daemon.config.read_text())["mcpServers"]


def test_who_may_only_look_is_offered_nothing(own: Here) -> None:
    page = own.signed_in("--read-only")
    expect(page.get_by_role("link", name="Add a server")).to_have_count(0)
    page.goto(f"{own.address}/add")
    expect_words(page, "You may look at everything here and change nothing.")
    expect(page.get_by_label("What to add")).to_have_count(0)


@contextmanager
def newcomer(browser: Browser, **servers: object) -> Iterator[Here]:
    """A daemon without servers, in a home with Cursor that has these."""
    daemon = Daemon(own_directory(), {"mcpServers": {}}, {})
    daemon.environ["HOME"] = str(daemon.directory)
    cursor = daemon.directory / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text(json.dumps({"mcpServers": servers}))
    with started(daemon):
        parts = urlsplit(daemon.ask("ui")["link"])
        try:
            yield Here(daemon, browser, f"{parts.scheme}://{parts.netloc}/ui")
        finally:
            close_windows(browser, visitors=True)


@HERE_OR_AT_NIGHT
def test_the_first_run_takes_over_what_clients_have(browser: Browser, *, script: bool) -> None:
    with newcomer(browser, echo=scripted(tools=["echo"])) as here:
        page = here.signed_in(java_script_enabled=script)
        expect(page.get_by_role("heading", name="No server is configured yet")).to_be_visible()
        expect(page.locator("#first-run tbody tr")).to_contain_text("Cursor")
        if script:
            accessible(settled(page))
        expect(page.locator("#servers-available")).to_have_class("idle")
        press(page, "Set all of this up, and change your clients' files", "mcpd replaces them in Cursor")
        expect(page.locator("#first-run tbody tr")).to_contain_text("ready")
        expect(page.locator(".cards > li")).to_contain_text("ready")
        expect(page.get_by_role("heading", name="No server is configured yet")).to_have_count(0)
        taken = json.loads((here.daemon.directory / ".cursor" / "mcp.json").read_text())["mcpServers"]
        assert list(taken) == ["mcpd"]
        assert "--socket" not in json.dumps(taken), "it is the usual one"
        if script:
            accessible(settled(page))
            page.get_by_role("button", name="Undo all of this").click()
            press(page.get_by_role("dialog"), "Undo", "is restored, byte for byte")
            expect(page.get_by_role("heading", name="No server is configured yet")).to_be_visible()
            assert json.loads(here.daemon.config.read_text())["mcpServers"] == {}
        assert "refused a connection" not in here.daemon.said(), "a child of the daemon is no client"


@HERE_OR_AT_NIGHT
def test_a_client_is_connected_and_disconnected(browser: Browser, *, script: bool) -> None:
    with newcomer(browser, echo=scripted(tools=["echo"])) as here:
        page = here.signed_in(java_script_enabled=script)
        file = here.daemon.directory / ".cursor" / "mcp.json"
        before = file.read_text()
        page.get_by_role("link", name="Clients").click()
        cursor = page.get_by_role("row").filter(has_text="Cursor")
        expect(cursor).to_contain_text("not in it")
        expect(cursor).to_contain_text("echo")
        press(page, "Connect Cursor", "It takes effect when a client is restarted")
        expect(cursor).to_contain_text(f"in {file}")
        assert "mcpd" in json.loads(file.read_text())["mcpServers"]
        if script:
            accessible(settled(page))
            reader = here.signed_in("--read-only")
            reader.get_by_role("link", name="Clients").click()
            expect(reader.get_by_role("row").filter(has_text="Cursor")).to_contain_text(f"in {file}")
            expect(reader.get_by_role("button", name="Cursor")).to_have_count(0)
            accessible(settled(reader))
        page.get_by_role("button", name="Disconnect Cursor").click()
        if script:
            page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
        expect_words(page, "is restored, byte for byte")
        assert file.read_text() == before


def test_where_nothing_is_found_a_server_can_be_added(browser: Browser) -> None:
    with newcomer(browser) as here:
        page = here.signed_in(viewport=PHONE)
        expect_words(page, "there is no server to begin with")
        expect(page.get_by_role("button", name="Set all of this up")).to_have_count(0)
        accessible(settled(page))
        page.get_by_role("link", name="Add a server").first.click()
        expect(page.get_by_label("What to add")).to_be_visible(timeout=WAIT * 1000)
