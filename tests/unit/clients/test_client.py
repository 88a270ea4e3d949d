"""What a client wishes for, and what it gets under the configuration as it is."""

import os
from typing import Any

import attrs
import pytest

from daemon.catalog.loaded import OTHERS
from daemon.clients.client import Client, fault_of_choice, local_user, read_choice
from daemon.config.config_model import Config
from daemon.surfaces.table import SURFACES
from tests.fakes_upstream import FakeUpstream
from tests.unit.cases import cases
from tests.unit.catalog.samples import servers
from tests.unit.config.reading import config_of

PROFILES = {"default": {"surface": "load"}, "small": {"categories": ["alpha"], "surface": "search"}}


def config(**written: Any) -> Config:
    return config_of({"mcpServers": {"alpha": {"command": "unused"}}, **written})


def client(hello: dict[str, Any] | None = None, **written: Any) -> Client:
    made = Client(config(**written), SURFACES)
    if hello is not None:
        made.wish(hello)
    return made


def told(it: Client, config: Config) -> tuple[str, str, str]:
    """The names of its profile and its surface, and why it is denied."""
    selection = it.select(config)
    return selection.profile.name, selection.surface.name, selection.denied


@cases("hello", "profile", "surface")
def test_a_client_gets_what_it_asks_for(hello: dict[str, Any] | None, profile: str, surface: str) -> None:
    assert told(client(hello, profiles=PROFILES), config(profiles=PROFILES)) == (profile, surface, "")


@pytest.mark.parametrize("hello", [{"surface": "browse"}, {"lazy": True}, {}])
def test_with_the_master_switch_off_everybody_gets_everything(hello: dict[str, Any]) -> None:
    selection = client(hello).select(config(lazy=False, profiles=PROFILES))
    assert (selection.surface.name, selection.on_demand) == ("full", False)


@cases("hello", "reason")
def test_what_does_not_exist_denies_everything(hello: dict[str, Any], reason: str) -> None:
    denied = client(hello).select(config(profiles=PROFILES)).denied
    assert denied.startswith(reason)
    assert len(denied) < 300


def test_a_profile_that_leaves_the_configuration_serves_nothing_and_one_that_comes_back_does() -> None:
    it, whole = client({"profile": "small"}), config(profiles=PROFILES)
    assert told(it, whole) == ("small", "search", "")
    without = attrs.evolve(whole, profiles={"default": whole.profiles["default"]})
    assert "no profile 'small'" in it.select(without).denied
    assert told(it, whole) == ("small", "search", "")


def test_a_client_with_chosen_servers_keeps_them_wherever_it_is_moved() -> None:
    it, now = client({"servers": ["alpha"], "lazy": False}), config(profiles=PROFILES)
    assert it.select(now).servers == ("alpha",)
    assert (told(it, now), it.selection.on_demand) == (("default", "itself", ""), False)
    it.move("small")
    assert (told(it, now), it.selection.servers) == (("small", "itself", ""), ("alpha",))
    without = attrs.evolve(now, mcp_servers={})
    assert "no server 'alpha'" in it.select(without).denied
    assert it.select(now).denied == ""


def test_a_client_sees_nothing_of_servers_that_it_has_elsewhere_wherever_it_is_moved() -> None:
    it, now = client({"without": ["alpha"]}), config(profiles=PROFILES)
    assert it.select(now).elsewhere == {"alpha"}
    it.move("small")
    assert it.select(now).elsewhere == {"alpha"}
    assert "not a list" in client({"without": "alpha"}).select(now).denied


def test_a_surface_beside_servers_changes_nothing_and_itself_is_none_to_ask_for() -> None:
    now = config(profiles=PROFILES)
    assert client({"servers": ["alpha"], "surface": "browse"}).select(now).surface.name == "itself"
    assert "no surface 'itself'" in client({"surface": "itself"}).select(now).denied
    assert "not a list" in client({"servers": "git"}).select(now).denied


def test_an_instance_is_for_those_who_use_it_until_it_has_ended_and_its_name_is_another_ones() -> None:
    guest, instance = client(), FakeUpstream("alpha")
    instance.name = "alpha#12"
    assert not guest.has("alpha#12", {"alpha"})
    guest.uses(instance)
    assert guest.has("alpha#12", {"alpha"})
    assert not guest.has("alpha#12", {"beta"})
    instance.is_gone = True
    assert not guest.has("alpha#12", {"alpha"})
    assert guest.has("alpha", {"alpha"})


CATEGORIES: dict[str, Any] = {
    "whole": {"server": "git"},
    "named": {"tools": {"includeNames": ["hg/log"]}},
    "borrowed": {"server": "git", "tools": {"includeNames": ["fs/read"]}},
    "any": {"tools": {"includePatterns": ["read_*"]}},
}
CHOOSING: dict[str, Any] = {
    "reader": {"categories": ["whole"]},
    "logs": {"categories": ["named", "borrowed"]},
    "open": {"categories": ["any"]},
    "more": {"categories": ["named"], "includedOptionalTools": ["fs/read"]},
    "bare": {"categories": ["named"], "includedOptionalTools": ["read"]},
}
CONFIG = config_of({"mcpServers": servers("git", "hg", "fs"), "categories": CATEGORIES, "profiles": CHOOSING})


@cases("said", "read")
def test_servers_are_named_in_a_list(said: object, read: list[str] | None) -> None:
    assert read_choice(said) == (None if read is None else tuple(read))


@cases("profile", "shown")
def test_what_a_profile_shows_nothing_of_cannot_be_chosen(profile: str, shown: list[str]) -> None:
    rules = CONFIG.profiles[profile]
    chosen = [name for name in CONFIG.mcp_servers if not fault_of_choice(CONFIG, rules, (name,))]
    assert chosen == shown


def test_without_categories_each_server_is_one() -> None:
    plain = config_of({"mcpServers": servers("git", "hg"), "profiles": {"reader": {"categories": ["git"]}}})
    reader = plain.profiles["reader"]
    assert fault_of_choice(plain, reader, ("git",)) == ""
    assert "profile 'reader' shows nothing of server 'hg'" in fault_of_choice(plain, reader, ("git", "hg"))


def test_a_refusal_names_what_is_close_and_what_there_is_in_this_profile() -> None:
    default, reader = CONFIG.profiles["default"], CONFIG.profiles["reader"]
    fault = fault_of_choice(CONFIG, default, ("gti",))
    assert fault == (
        "there is no server 'gti' in mcpd's configuration. Did you mean git? There are: git, hg, fs."
    )
    assert "hg" not in fault_of_choice(CONFIG, reader, ("gti",))
    assert len(fault_of_choice(CONFIG, default, ("x" * 9999,))) < 500
    assert fault_of_choice(CONFIG, default, ("git", "gti")) == "", "a reload may have removed it for a while"
    assert "not a list" in fault_of_choice(CONFIG, default, None)
    assert fault_of_choice(CONFIG, default, ()) == ""


def test_another_users_key_is_another_session() -> None:
    other = local_user(os.getuid() + 1).own_key("k")
    assert other == f"{OTHERS}{os.getuid() + 1}: k"
    # Nobody but the daemon's own user can name a key that is another's.
    assert local_user(os.getuid() + 2).own_key(other) != other


def test_another_user_but_root_names_only_the_directories_of_listen() -> None:
    named = [local_user(uid, ("/srv/*",)).workspaces for uid in (os.getuid(), 0, os.getuid() + 1)]
    assert [*named, local_user(os.getuid() + 1).workspaces] == [None, None, ("/srv/*",), ()]
