"""Who is at the other end of a connection, and whose sessions its keys mean."""

from __future__ import annotations

import os

from daemon.catalog.loaded import OTHERS, TOKENS
from daemon.clients.client import LOCAL_USER, Principal, local_user


def test_the_daemons_own_user_names_its_own_keys() -> None:
    assert local_user(os.getuid()) == LOCAL_USER
    assert LOCAL_USER.own_key("k") == "k"


def test_another_users_key_is_another_session() -> None:
    other = local_user(os.getuid() + 1).own_key("k")
    assert other == f"{OTHERS}{os.getuid() + 1}: k"
    # Nobody but the daemon's own user can name a key that is another's.
    assert local_user(os.getuid() + 2).own_key(other) != other


def test_a_tokens_key_is_a_session_of_its_own() -> None:
    ci, other = (Principal(owner=f"{TOKENS}{name}: ", token=name) for name in ("ci", "other"))
    assert len({ci.own_key("k"), other.own_key("k"), LOCAL_USER.own_key("k")}) == 3


def test_who_has_shown_nothing_may_use_every_profile_and_is_told_apart() -> None:
    assert (LOCAL_USER.token, LOCAL_USER.profiles, LOCAL_USER.keeps) == ("", None, True)
