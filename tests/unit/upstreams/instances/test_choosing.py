"""Which instance a client gets, by its session and its directory."""

from typing import Any

import pytest

from daemon.catalog.loaded import anonymous_key
from daemon.config.config_model import WORKSPACE, Server, Share, TransportType
from daemon.errors import NoSession, NoWorkspace
from daemon.ports import Holder
from daemon.upstreams import server_instances
from daemon.upstreams.server_instances import configured, key_of, label_of, told_session


def server(**more: Any) -> Server:
    return Server(**{"name": "s", "type": TransportType.STDIO, "command": "run", **more})


def holder(**more: Any) -> Holder:
    return Holder(**{"session": "key", "number": 12, **more})


def label(of: Server, who: Holder, *taken: str, home: str = "/home/me") -> str:
    return label_of(of, who, home, taken.__contains__)


def test_a_session_has_its_own_and_in_another_directory_another() -> None:
    own = server(share=Share.SESSION)
    keys = [
        key_of(own, holder(session=who, workspace=where)) for who in ("a", "b") for where in (None, "/x", "/y")
    ]
    assert len(set(keys)) == 6


def test_whoever_works_in_a_directory_shares_one() -> None:
    by_directory = server(args=(f"{WORKSPACE}/src",))
    assert key_of(by_directory, holder(session="a", workspace="/x")) == key_of(
        by_directory, holder(session=None, workspace="/x")
    )


@pytest.mark.parametrize("place", [{"command": WORKSPACE}, {"cwd": WORKSPACE}, {"env": {"A": WORKSPACE}}])
@pytest.mark.parametrize("share", [None, Share.SESSION])
def test_a_server_that_names_the_workspace_needs_one(place: dict[str, Any], share: Share | None) -> None:
    with pytest.raises(NoWorkspace, match="MCPD_WORKSPACE"):
        key_of(server(share=share, **place), holder())


def test_a_directory_that_was_named_in_vain_is_not_replaced_by_another() -> None:
    with pytest.raises(NoWorkspace, match="/nowhere does not exist"):
        key_of(server(share=Share.WORKSPACE), holder(fault="/nowhere does not exist"))
    assert key_of(server(share=Share.SESSION), holder(fault="/nowhere does not exist")) == ("key", None)


def test_without_a_session_there_is_none_of_a_sessions_own() -> None:
    with pytest.raises(NoSession, match="mcpd connect"):
        key_of(server(share=Share.SESSION), holder(session=None))


def test_names_abbreviate_the_home_directory_and_never_mean_two() -> None:
    own, by_directory = server(share=Share.SESSION), server(share=Share.WORKSPACE)
    assert label(own, holder()) == "s#12"
    assert label(own, holder(), "s#12", "s#12.2") == "s#12.3"
    named = {
        where: label(by_directory, holder(workspace=where))
        for where in ("/home/me", "/home/me/src", "/home/meander", "/~/src", "/a\nb")
    }
    assert list(named.values()) == ["s@~", "s@~/src", "s@/home/meander", "s@/~/src", r"s@/a\x0ab"]
    assert label(by_directory, holder()) == "s@"
    assert label(by_directory, holder(workspace="/x"), home="/") == "s@/x"


def test_the_workspace_stands_wherever_it_was_named() -> None:
    made = configured(
        server(command=f"{WORKSPACE}/bin", args=(WORKSPACE, f"--in={WORKSPACE}"), env={"A": f"{WORKSPACE}:/b"}),
        holder(workspace="/x", capabilities={"sampling": {}}),
        "s@/x",
    )
    assert (made.command, made.args, made.env, made.cwd) == ("/x/bin", ("/x", "--in=/x"), {"A": "/x:/b"}, "/x")
    assert made.instance is not None
    assert (made.name, made.label, made.instance.workspace) == ("s", "s@/x", "/x")
    # It has more clients than one.
    assert made.instance.capabilities is None


def test_what_is_configured_is_kept() -> None:
    assert configured(server(cwd="/own"), holder(workspace="/x"), "s").cwd == "/own"
    assert configured(server(cwd=f"{WORKSPACE}/sub"), holder(workspace="/x"), "s").cwd == "/x/sub"
    assert configured(server(share=Share.SESSION), holder(), "s#12").cwd is None
    remote = server(type=TransportType.HTTP, command=None, url="http://h", share=Share.SESSION)
    made = configured(remote, holder(workspace="/x", capabilities={"sampling": {}}), "s#12")
    assert made.cwd is None
    assert made.instance is not None
    assert made.instance.capabilities == {"sampling": {}}


def test_a_sessions_instance_is_told_apart_from_those_of_other_daemons_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def session_of(client: Holder, label: str = "s#12") -> str:
        made = configured(server(share=Share.SESSION), client, label).instance
        assert made is not None
        return made.session

    connection = holder(session=object())
    before, keyed = session_of(connection), session_of(holder())
    assert session_of(connection) == before != session_of(holder(session=object(), number=13))
    assert session_of(holder(workspace="/x")) != keyed
    command = holder(session=("operator", object()), number=0)
    assert session_of(command, "s#0") != session_of(command, "s#0.2")
    monkeypatch.setattr(server_instances, "LIFE", "another")
    assert session_of(connection) != before
    assert session_of(holder()) == keyed
    shared = configured(server(), holder(workspace="/x"), "s@/x").instance
    assert shared is not None
    assert shared.session == ""


def test_events_name_the_session_by_its_key_or_by_its_connection() -> None:
    assert told_session(holder()) == "key"
    assert told_session(holder(session=anonymous_key("0" * 32))) == "#12"
    assert told_session(holder(session=object())) == "#12"
    assert told_session(holder(session=object(), number=0)) == ""
    assert told_session(holder(session=None)) == ""
