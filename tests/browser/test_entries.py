"""The entry of a server in Chromium: changed, refused, checked while typing, taken back, renamed, removed."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.driving import Here, accessible, console, expect_words, press, row, settled
from tests.e2e.harness import scripted
from tests.waiting import WAIT

SECRET = "7fK2mQ9xVb4Z"
SERVERS: dict[str, Any] = {
    "git": {**scripted(tools=["git_log"]), "env": {"LEVEL": "one", "API_TOKEN": SECRET}},
    "notes": scripted(tools=["read_note"]),
    "off": {**scripted(tools=["x"]), "enabled": False},
    "poor": {**scripted(tools=["y"]), "env": {"PLACE_TOKEN": "${PLACE_TOKEN}", "PLACE_NAME": "${PLACE_NAME}"}},
}
BOTH = pytest.mark.parametrize("script", [True, False], ids=["with a script", "without"])


@pytest.fixture
def own(browser: Browser) -> Iterator[Here]:
    """A daemon of each test's own, as its entries change."""
    with console(browser, {"mcpServers": SERVERS}) as opened:
        yield opened


def entry_in(here: Here, name: str) -> Any:
    return json.loads(here.daemon.config.read_text())["mcpServers"].get(name)


def settings(here: Here, page: Page, name: str = "git") -> Page:
    page.goto(f"{here.address}/servers/{name}?tab=settings")
    return page


def change(page: Page, before: str, after: str) -> None:
    """Type something else into the entry, and save it."""
    entry = page.get_by_role("textbox", name="The entry of")
    entry.fill(entry.input_value().replace(before, after))
    page.get_by_role("button", name="Save", exact=True).click()


@BOTH
def test_an_entry_is_changed_and_the_change_taken_back(own: Here, script: bool) -> None:
    page = settings(own, own.signed_in(java_script_enabled=script))
    entry = page.get_by_role("textbox", name="The entry of")
    expect(entry).to_have_value(re.compile("(a secret)"))
    expect(page.locator("#server-settings")).to_contain_text("API_TOKEN")
    assert SECRET not in page.content()
    change(page, '"one"', '"two"')
    expect_words(page, "git is ready")
    assert entry_in(own, "git")["env"]["LEVEL"] == "two"
    expect(entry).to_have_value(re.compile('"two"'))
    if script:
        accessible(settled(page))
    page.get_by_role("button", name="Undo").click()
    expect(entry).to_have_value(re.compile('"one"'))
    assert entry_in(own, "git")["env"]["LEVEL"] == "one"
    assert SECRET not in page.content()


@BOTH
def test_what_was_done_is_said_without_gaps_and_makes_room(own: Here, script: bool) -> None:
    page = settings(own, own.signed_in(java_script_enabled=script))
    change(page, '"one"', '"two"')
    message = page.locator("#messages .message")
    expect(message).to_contain_text("git is ready")
    heights = "each => [each.clientHeight, parseFloat(getComputedStyle(each).lineHeight)]"
    tall, line = message.evaluate(heights)
    assert tall < (message.inner_text().strip().count("\n") + 4) * line, "the Undo button stands below the text"
    page.keyboard.press("End")
    bottom, top = (
        "message.getBoundingClientRect().bottom",
        "document.querySelector('h1').getBoundingClientRect().top",
    )
    assert message.evaluate(f"message => {bottom} <= {top}"), "it covers nothing"
    message.get_by_role("link", name="Close").click()
    expect(message).to_have_count(0)
    expect(page.get_by_role("textbox", name="The entry of")).to_be_visible()


@BOTH
def test_common_keys_have_fields_of_their_own_which_keep_the_rest(own: Here, script: bool) -> None:
    page = settings(own, own.signed_in(java_script_enabled=script))
    page.get_by_label("timeouts.call").fill("7.5")
    page.get_by_label("trust").select_option("none")
    page.get_by_label("env").fill(page.get_by_label("env").input_value().replace("one", "two words"))
    press(page, "Save these keys", "git is ready")
    expect(page.get_by_label("timeouts.call")).to_have_value("7.5")
    changed = {"timeouts": {"call": 7.5}, "trust": "none", "env": {"LEVEL": "two words", "API_TOKEN": SECRET}}
    assert entry_in(own, "git") == {**SERVERS["git"], **changed}
    page.get_by_label("timeouts.call").fill("")
    page.get_by_role("textbox", name="command").fill("/absent")
    press(page, "Save these keys", "git does not come up (failed)")
    expect(page.get_by_role("textbox", name="command")).to_have_value("/absent")
    assert entry_in(own, "git")["timeouts"] == {"call": 7.5}


@BOTH
def test_what_a_server_lacks_is_written_where_its_card_says_so_and_it_starts(own: Here, script: bool) -> None:
    page = own.signed_in(java_script_enabled=script)
    lacked = "qX7new9Secret3Vb"
    page.goto(f"{own.address}/servers{'' if script else '?view=table'}")
    for name, kind, value in (("PLACE_TOKEN", "password", lacked), ("PLACE_NAME", "text", "here")):
        field = row(page, "poor").get_by_label(name, exact=True)
        expect(field).to_have_attribute("type", kind)
        field.fill(value)
        page.get_by_role("button", name=f"Save {name} of poor").click()
    expect(row(page, "poor")).to_contain_text("ready")
    expect(row(page, "poor").locator(".lacks")).to_have_count(0)
    assert lacked not in own.daemon.config.read_text() + page.content()
    assert f"POOR__PLACE_TOKEN={lacked}" in (own.daemon.directory / "env").read_text()
    assert entry_in(own, "poor")["env"]["PLACE_NAME"] == "here"


@BOTH
def test_several_servers_are_ticked_in_the_table_and_changed_at_once(own: Here, script: bool) -> None:
    page = own.signed_in(java_script_enabled=script)
    page.goto(f"{own.address}/servers?view=table")
    page.get_by_role("button", name="Pin the ticked servers").click()
    expect(page.get_by_role("alert")).to_contain_text("tick the servers first")
    for word, state in (("Disable", "disabled"), ("Enable", "ready")):
        for name in ("git", "notes"):
            page.get_by_label(f"Tick {name}").check()
        page.get_by_role("button", name=f"{word} the ticked servers").click()
        if script and word == "Disable":
            page.get_by_role("dialog").get_by_role("button", name="Disable").click()
        for name in ("git", "notes"):
            expect(row(page, name)).to_contain_text(state)
        expect(row(page, "off")).to_contain_text("disabled")


def test_faults_are_shown_while_typing_and_what_is_refused_is_kept_as_it_was_typed(own: Here) -> None:
    page = settings(own, own.signed_in())
    entry = page.get_by_role("textbox", name="The entry of")
    entry.fill(entry.input_value().replace('"env": {', '"start": "never", "env": {'))
    expect(page.locator("#entry-faults")).to_contain_text("line 9, column", timeout=WAIT * 1000)
    expect(page.locator("#entry-faults")).to_contain_text("$.start")
    accessible(settled(page))
    entry.fill(entry.input_value().replace('"never"', '"lazy"'))
    expect(page.locator("#entry-faults")).to_have_text("No faults.", timeout=WAIT * 1000)
    settings(own, page)
    change(page, "{", "{{")
    expect(page.get_by_role("alert")).to_contain_text("line 1")
    expect(page.get_by_role("textbox", name="The entry of")).to_have_value(re.compile("^{{"))
    assert entry_in(own, "git") == SERVERS["git"]
    # Only there, and only once.
    settings(own, page, "notes")
    expect(page.get_by_role("textbox", name="The entry of")).to_have_value(re.compile("^{\n"))


def test_what_somebody_else_has_changed_meanwhile_is_not_overwritten_unseen(own: Here) -> None:
    page, other = settings(own, own.signed_in()), settings(own, own.signed_in(locale="en-GB"))
    change(other, '"one"', '"theirs"')
    expect_words(other, "git is ready")
    change(page, '"one"', '"mine"')
    expect(page.get_by_role("alert")).to_contain_text("git has changed since you opened it")
    assert entry_in(own, "git")["env"]["LEVEL"] == "theirs"
    press(page, "Save", "git is ready", exact=True)
    # The other one's change is not the last one any more.
    other.get_by_role("button", name="Undo").click()
    expect(other.get_by_role("alert")).to_contain_text("git was changed again since then: nothing was undone")
    assert entry_in(own, "git")["env"]["LEVEL"] == "mine"


def test_a_server_is_renamed_and_named_back_removed_and_back_with_its_secret(own: Here) -> None:
    page = settings(own, own.signed_in())
    page.get_by_label("New name").fill("code")
    page.get_by_role("button", name="Rename").click()
    expect(page).to_have_url(f"{own.address}/servers/code?tab=settings")
    assert entry_in(own, "code") == SERVERS["git"]
    page.get_by_role("button", name="Undo").click()
    expect(page).to_have_url(f"{own.address}/servers/git?tab=settings")
    assert entry_in(own, "git") == SERVERS["git"]
    page.get_by_role("button", name="Remove git").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page).to_have_url(f"{own.address}/servers")
    expect_words(page, "removed git from")
    assert entry_in(own, "git") is None
    press(page, "Undo", "git is ready")
    assert own.daemon.ask("status")["servers"]["git"]["state"] == "ready"
    again = entry_in(own, "git")
    assert again["args"] == SERVERS["git"]["args"]
    # `mcpd add` keeps secrets in a file of their own.
    kept = (own.daemon.directory / "env").read_text()
    assert again["env"]["API_TOKEN"] == SECRET or f"GIT__API_TOKEN={SECRET}" in kept


def test_a_new_secret_is_kept_apart_and_the_old_one_comes_back(own: Here) -> None:
    page = settings(own, own.signed_in())
    change(page, "(a secret)", "qX7new9Secret3Vb")
    expect_words(page, "git is ready")
    assert "qX7new9Secret3Vb" not in page.content()
    kept = own.daemon.directory / "env"
    assert "qX7new9Secret3Vb" in kept.read_text()
    assert "qX7new9Secret3Vb" not in own.daemon.config.read_text()
    # Now its entry has a reference, which stays as it is when the secret changes.
    change(page, "${GIT__API_TOKEN}", "wK4third5Secret8Yz")
    expect(page.get_by_role("textbox", name="The entry of")).to_have_value(re.compile("GIT__API_TOKEN"))
    expect_words(page, "git is ready")
    assert "wK4third5Secret8Yz" in kept.read_text()
    press(page, "Undo", "git is ready")
    assert "qX7new9Secret3Vb" in kept.read_text()


def test_a_server_that_is_off_is_switched_on_in_the_file_and_a_form_that_waits_is_sent_once(own: Here) -> None:
    page = settings(own, own.signed_in(), "off")
    press(page, "Enable off", "off is ready")
    assert entry_in(own, "off").get("enabled", True) is True
    settings(own, page)
    page.evaluate(_COUNT)
    page.get_by_role("button", name="Save", exact=True).click()
    waits = page.get_by_role("button", name="Saving and trying it")
    expect(waits).to_have_attribute("aria-disabled", "true")
    waits.click(force=True)
    assert page.evaluate("window.sent") == 1


def test_who_may_only_look_sees_no_entry_and_changes_nothing(own: Here) -> None:
    page = settings(own, own.signed_in("--read-only"))
    expect_words(page, "What runs")
    assert page.locator("#server-entry").count() == 0
    for path in ("/servers/git/set", "/servers/git/remove", "/undo", "/check"):
        assert _posted(page, path) == 403
    assert entry_in(own, "git") == SERVERS["git"]


def _posted(page: Page, path: str) -> int:
    """The status of a form of this session's own, as its page would send it."""
    script = """async (path) => {
        const form_token = document.querySelector("[name=form_token]").value;
        const body = new URLSearchParams({form_token, name: "git", entry: "{}", seen: ""});
        return (await fetch(`/ui${path}`, {method: "POST", body})).status;
    }"""
    return int(page.evaluate(script, path))


_COUNT = """() => {
    window.sent = 0;
    document.addEventListener("submit", (event) => {
        if (!event.defaultPrevented) window.sent += 1;
        event.preventDefault();
    });
}"""
"""Has a page count the forms that would be sent, and send none."""
