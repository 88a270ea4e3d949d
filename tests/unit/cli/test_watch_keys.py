"""Keys of the watched status: what each chooses."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.cli.watch_view import MAX_FILTER, ORDERS, WatchChoices, WatchPage
from daemon.states import ServerState
from tests.unit.cli.daemons import down, server

SERVERS: Any = {
    "git": server(calls=5, p95Ms=2.0, rssBytes=10),
    "time": down(),
    "files": server(calls=50, p95Ms=90.0, rssBytes=None),
    "mail": server(state="failed", calls=0, p95Ms=None, rssBytes=900),
}


def pressed(*keys: str, servers: Any = SERVERS) -> WatchChoices:
    choices = WatchChoices(room=3)
    for key in keys:
        choices.press(key, servers)
    return choices


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("configuration", ["git", "time", "files", "mail"]),
        ("name", ["files", "git", "mail", "time"]),
        ("state", ["mail", "time", "files", "git"]),
        ("calls", ["files", "git", "time", "mail"]),
        ("latency", ["files", "git", "mail", "time"]),
        ("memory", ["mail", "git", "files", "time"]),
    ],
)
def test_s_goes_through_the_orders(order: str, first: list[str]) -> None:
    choices = pressed(*"s" * list(ORDERS).index(order))
    assert choices.order == order
    if order == "calls":
        assert choices.shown(SERVERS)[:2] == first[:2]
    else:
        assert choices.shown(SERVERS) == first


def test_of_calls_the_last_minutes_count() -> None:
    servers = {
        "idle": server(calls=900, p95Ms=9.0, recent={"calls": 0, "errors": 0, "p95Ms": None}),
        "busy": server(calls=3, p95Ms=1.0, recent={"calls": 3, "errors": 2, "p95Ms": 4.0}),
    }
    for order in ("calls", "latency", "errors"):
        assert WatchChoices(order=order).shown(servers) == ["busy", "idle"]


def test_after_the_last_order_comes_the_first() -> None:
    assert pressed(*"s" * len(ORDERS)).order == WatchChoices().order


def test_every_state_has_its_place_and_one_of_a_newer_daemon_comes_first() -> None:
    servers = {str(state): server(state=str(state)) for state in ServerState}
    ordered = WatchChoices(order="state").shown({**servers, "odd": server(state="melted")})
    assert ordered[:2] == ["failed", "odd"]
    assert ordered[-3:] == ["ready", "dormant", "disabled"]


def test_a_server_is_as_bad_as_its_worst_instance() -> None:
    servers = {"a": server(state="backoff"), "b": server(instances=[server(state="failed")])}
    assert WatchChoices(order="state").shown(servers) == ["b", "a"]


@pytest.mark.parametrize("key", ["q", "c-c", "escape"])
def test_what_leaves(key: str) -> None:
    assert pressed(key).left


@pytest.mark.parametrize("key", ["x", "f1", "tab", "left"])
def test_other_keys_do_nothing(key: str) -> None:
    assert pressed(key) == WatchChoices(room=3, selected="git")


def test_a_filter_is_typed_and_kept_and_escape_drops_it_before_it_leaves() -> None:
    choices = pressed("/", *"Xy", "backspace", "backspace", *"FAI")
    assert (choices.typing, choices.shown(SERVERS)) == (True, ["mail"])
    choices.press("enter", SERVERS)
    assert (choices.typing, choices.text) == (False, "FAI")
    choices.press("escape", SERVERS)
    assert (choices.text, choices.left) == ("", False)
    choices.press("escape", SERVERS)
    assert choices.left


def test_what_is_typed_into_a_filter_is_no_command() -> None:
    choices = pressed("/", *"qs?", "up", "\t")
    assert (choices.text, choices.left, choices.page) == ("qs?", False, WatchPage.TABLE)
    choices.press("escape", SERVERS)
    assert (choices.text, choices.typing, choices.left) == ("", False, False)
    assert pressed("/", "c-c").left


def test_a_filter_has_a_bound() -> None:
    assert len(pressed("/", *"a" * (MAX_FILTER + 9)).text) == MAX_FILTER


@pytest.mark.parametrize(
    ("keys", "selected"),
    [
        (["down"], "time"),
        (["j", "j"], "files"),
        (["down", "up"], "git"),
        (["k"], "git"),
        (["pagedown"], "files"),
        (["end"], "mail"),
        (["G", "j"], "mail"),
        (["end", "pageup"], "time"),
        (["end", "g"], "git"),
    ],
)
def test_a_server_is_selected(keys: list[str], selected: str) -> None:
    assert pressed(*keys).selected == selected


def test_the_selection_goes_with_its_server_and_to_the_first_when_that_is_gone() -> None:
    choices = pressed("down", "s")
    assert choices.current(choices.shown(SERVERS)) == "time"
    assert choices.current(["git"]) == "git"
    assert choices.current([]) == ""


def test_one_server_fills_the_screen_until_it_is_left() -> None:
    choices = pressed("down", "enter", "down", "pagedown")
    assert (choices.page, choices.selected, choices.top) == (WatchPage.SERVER, "time", 3)
    choices.press("home", SERVERS)
    assert choices.top == 0
    choices.press("escape", SERVERS)
    assert (choices.page, choices.left) == (WatchPage.TABLE, False)


def test_without_servers_there_is_nothing_to_look_into() -> None:
    assert pressed("down", "enter", servers={}).page is WatchPage.TABLE


def test_the_keys_are_told_and_left_again() -> None:
    assert pressed("?").page is WatchPage.HELP
    assert pressed("?", "?").page is WatchPage.TABLE
    assert pressed("?", "backspace").page is WatchPage.TABLE
