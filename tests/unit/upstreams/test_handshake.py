"""Which era a server speaks, read off its answers."""

from typing import Any

import msgspec
import pytest

from daemon import protocol
from daemon.catalog.extensions import KnownEra, era_in, with_era
from daemon.causes import Cause
from daemon.config.tuning import Timeouts
from daemon.errors import ProtocolFault, StartTimeout, UpstreamLost
from daemon.model import Era, Kind
from daemon.upstreams.handshake import ABOUT_CHARACTERS, LONGEST_START, Greeter, Greeting, initialize, probe
from daemon.wire.envelope import HttpRefusal, RemoteError
from tests.unit.cases import cases
from tests.unit.upstreams.transports.replies import DEATH, SILENCE, TableConnection, refusal

NEWEST = protocol.HANDSHAKE_VERSIONS[-1]
DISCOVERED: dict[str, Any] = {
    "supportedVersions": [*protocol.HANDSHAKE_VERSIONS, protocol.MODERN_VERSION],
    "capabilities": {"tools": {"listChanged": True}},
    "_meta": {protocol.SERVER_INFO_KEY: {"name": "git", "version": "2"}},
}
INITIALIZED: dict[str, Any] = {
    "protocolVersion": NEWEST,
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "git", "version": "2"},
}


async def test_a_server_of_the_modern_era_is_recognised() -> None:
    connection = TableConnection(server__discover=[DISCOVERED])
    assert await probe(connection, 3.0) == Greeting(
        era=Era.MODERN,
        version=protocol.MODERN_VERSION,
        lists_tools=True,
        announced=("tools",),
        server_info="git 2",
        introduction=(
            b'{"serverInfo":{"name":"git","version":"2"},"capabilities":{"tools": {"listChanged": true}},'
            b'"others":{"supportedVersions":["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25",'
            b' "2026-07-28"],"_meta":{}}}'
        ),
    )
    assert connection.said == [("server/discover", {})]
    assert connection.patience == [3.0]
    assert connection.adopted == [(Era.MODERN, protocol.MODERN_VERSION)]


@pytest.mark.parametrize(
    ("said", "about"),
    [
        ({}, ""),
        ({"instructions": " Keeps versions.\n"}, "Keeps versions."),
        ({"instructions": 7}, ""),
        ({"instructions": "x" * 100_000}, "x" * ABOUT_CHARACTERS),
        ({"serverInfo": {"name": "git", "description": "Versions."}, "instructions": "Other."}, "Versions."),
    ],
)
async def test_what_a_server_says_that_it_is_for_is_remembered(said: dict[str, Any], about: str) -> None:
    connection = TableConnection(initialize=[{**INITIALIZED, **said}])
    assert (await initialize(connection, 1.0)).about == about


@pytest.mark.parametrize(
    "reply",
    [
        refusal(),
        refusal(-32602, "Invalid params"),
        refusal(-32001, "no session"),
        refusal(0, ""),
        SILENCE,
        {},
        {"supportedVersions": []},
        {"supportedVersions": list(protocol.HANDSHAKE_VERSIONS)},
        {"supportedVersions": "2026-07-28"},
        {"supportedVersions": None},
        *(b"[]", b'"yes"', b"null", b"1", b'"\xff"', b"[" * 5000),
    ],
)
async def test_whatever_else_a_server_answers_to_the_probe_it_is_of_the_older_era(reply: Any) -> None:
    """Any error means the older era; a server that answers nonsense may still know `initialize`."""
    assert await probe(TableConnection(server__discover=[reply]), 1.0) is None


def unsupported(data: bytes) -> RemoteError:
    return RemoteError(protocol.UNSUPPORTED_VERSION, "Unsupported protocol version", data)


async def test_a_server_that_refuses_our_version_and_names_it_among_its_own_is_asked_once_more() -> None:
    named = unsupported(b'{"supported": ["2026-07-28"]}')
    greeting = await probe(TableConnection(server__discover=[named, DISCOVERED]), 1.0)
    assert greeting is not None
    assert greeting.era is Era.MODERN
    assert await probe(TableConnection(server__discover=[named, named]), 1.0) is None


@pytest.mark.parametrize(
    "data", [b"null", b"[]", b"{", b'{"supported": "2026-07-28"}', b'{"supported": ["2025-11-25"]}']
)
async def test_a_server_that_does_not_name_our_version_is_asked_only_once(data: bytes) -> None:
    connection = TableConnection(server__discover=[unsupported(data), DISCOVERED])
    assert await probe(connection, 1.0) is None
    assert connection.said == [("server/discover", {})]


async def test_a_server_that_dies_of_the_probe_is_told_apart() -> None:
    with pytest.raises(UpstreamLost):
        await probe(TableConnection(server__discover=[DEATH]), 1.0)


@pytest.mark.parametrize("version", protocol.HANDSHAKE_VERSIONS)
async def test_every_older_revision_is_accepted(version: str) -> None:
    connection = TableConnection(initialize=[{**INITIALIZED, "protocolVersion": version}])
    greeting = await initialize(connection, 30.0)
    assert (greeting.era, greeting.version) == (Era.HANDSHAKE, version)
    assert connection.adopted == [(Era.HANDSHAKE, NEWEST), (Era.HANDSHAKE, version)]


async def test_the_newest_revision_is_offered_with_what_some_client_may_have_and_confirmed() -> None:
    """Servers show fewer tools to a client that declares nothing."""
    connection = TableConnection(initialize=[INITIALIZED])
    await initialize(connection, 30.0)
    params = {
        "protocolVersion": NEWEST,
        "capabilities": protocol.CLIENT_CAPABILITIES,
        "clientInfo": protocol.IDENTITY,
    }
    assert connection.said == [("initialize", params), ("notifications/initialized", {})]


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", "", None, 7, ["2025-11-25"]])
async def test_a_revision_that_we_do_not_speak_ends_the_attempt(version: Any) -> None:
    connection = TableConnection(initialize=[{**INITIALIZED, "protocolVersion": version}])
    with pytest.raises(ProtocolFault, match="no common protocol version"):
        await initialize(connection, 30.0)
    assert ("notifications/initialized", {}) not in connection.said


# By the cause of HTTP 403 a server would have itself started no more.
CHOSEN = {"code": -32000, "message": "no", "data": {"httpStatus": 403, "place": "h:80"}}


@pytest.mark.parametrize(
    ("reply", "text", "cause", "data"),
    [
        (SILENCE, "no answer to initialize within 1 s", Cause.HANDSHAKE_TIMEOUT, {"seconds": 1.0}),
        (refusal(-32000, "no licence"), "refused: no licence", Cause.HANDSHAKE_REFUSED,
         {"error": "no licence (-32000)"}),
        (RemoteError.from_wire(msgspec.json.encode(CHOSEN)), "refused: no", Cause.HANDSHAKE_REFUSED,
         {"error": "no (-32000)"}),
        (HttpRefusal(-32601, "h:80 answered HTTP 404", status=404, place="h:80"), "h:80 answered HTTP 404",
         Cause.NOT_AN_ENDPOINT, {"place": "h:80", "status": 404}),
    ],
)  # fmt: skip
async def test_why_there_was_no_handshake_is_quoted_and_its_cause_is_the_transports(
    reply: Exception, text: str, cause: Cause, data: dict[str, Any]
) -> None:
    with pytest.raises((ProtocolFault, StartTimeout), match=text) as raised:
        await initialize(TableConnection(initialize=[reply]), 1.0)
    assert (raised.value.reason.cause, raised.value.reason.data) == (cause, data)


@pytest.mark.parametrize("reply", [b"[]", b"null", b'{"a":"\xff"}', b'{"a":' + b"[" * 5000])
async def test_an_answer_to_initialize_that_is_no_object_is_a_protocol_fault(reply: bytes) -> None:
    with pytest.raises(ProtocolFault):
        await initialize(TableConnection(initialize=[reply]), 1.0)


@cases("capabilities", "lists", "announces")
async def test_capabilities_are_read_leniently(capabilities: Any, lists: bool, announces: bool) -> None:
    connection = TableConnection(initialize=[{**INITIALIZED, "capabilities": capabilities}])
    greeting = await initialize(connection, 1.0)
    assert (greeting.lists_tools, greeting.announces(Kind.TOOL)) == (lists, announces)


async def test_what_a_server_has_besides_tools_is_remembered() -> None:
    capabilities = {"resources": {}, "logging": {}, "prompts": {"listChanged": True}, "own": {}}
    connection = TableConnection(initialize=[{**INITIALIZED, "capabilities": capabilities}])
    greeting = await initialize(connection, 1.0)
    assert greeting.others == ("prompts", "resources")
    assert [kind for kind in Kind if greeting.lists(kind)] == [Kind.PROMPT, Kind.RESOURCE, Kind.TEMPLATE]
    assert [kind for kind in Kind if greeting.announces(kind)] == [Kind.PROMPT]


@cases("info", "shown")
async def test_a_servers_name_is_read_leniently(info: Any, shown: str) -> None:
    connection = TableConnection(initialize=[{**INITIALIZED, "serverInfo": info}])
    assert (await initialize(connection, 1.0)).server_info == shown


async def timed_out(greeter: Greeter, timeouts: Timeouts, *, installs: bool = False) -> float:
    """One start that takes too long. Returns how long it was waited for."""
    connection = TableConnection(server__discover=[SILENCE], initialize=[SILENCE])
    greeter.begin()
    with pytest.raises(StartTimeout):
        await greeter.greet(connection, timeouts, installs=installs)
    return connection.patience[-1]


@pytest.mark.parametrize(
    ("installs", "limits"), [(False, [30, 60, 120, 240, 300, 300]), (True, [120, 240, 300, 300])]
)
async def test_a_start_that_took_too_long_has_twice_the_time_the_next_time(
    installs: bool, limits: list[float]
) -> None:
    greeter = Greeter()
    assert [await timed_out(greeter, Timeouts(), installs=installs) for _ in limits] == limits
    assert limits[-1] == LONGEST_START


async def test_a_server_that_has_come_up_has_the_configured_time_again() -> None:
    greeter = Greeter()
    for _ in range(2):
        await timed_out(greeter, Timeouts())
    connection = TableConnection(server__discover=[SILENCE], initialize=[INITIALIZED])
    greeter.begin()
    await greeter.greet(connection, Timeouts(), installs=False)
    assert greeter.limit(Timeouts(), installs=False) == 120
    greeter.is_up()
    assert greeter.limit(Timeouts(), installs=False) == 30


async def test_no_configured_time_is_cut_and_no_number_of_failures_is_too_many() -> None:
    greeter = Greeter()
    patient, hasty = Timeouts(initialize=1000), Timeouts(initialize=0.001)
    assert [await timed_out(greeter, patient) for _ in range(2)] == [1000, 1000]
    for _ in range(1100):
        await timed_out(greeter, hasty)
    assert greeter.limit(hasty, installs=False) == LONGEST_START


@pytest.mark.parametrize(
    ("version", "next_time"), [("2", ["initialize"]), ("3", ["server/discover", "initialize"])]
)
async def test_a_server_that_was_probed_in_vain_is_probed_again_once_it_is_another_version(
    version: str, next_time: list[str]
) -> None:
    remembered = with_era(msgspec.json.encode({"serverInfo": INITIALIZED["serverInfo"]}), Era.HANDSHAKE)
    greeter, now = Greeter(), {**INITIALIZED, "serverInfo": {"name": "git", "version": version}}
    for wanted in (["initialize"], next_time):
        connection = TableConnection(server__discover=[refusal()], initialize=[now])
        greeter.begin(remembered=remembered)
        greeting = await greeter.greet(connection, Timeouts(), installs=False)
        assert [said for said, _ in connection.said if not said.startswith("notifications/")] == wanted
        remembered = greeting.introduction
    assert era_in(remembered).era is Era.HANDSHAKE


async def died(greeter: Greeter, remembered: bytes = b"") -> None:
    """One run that ends while the server is probed."""
    greeter.begin(remembered=remembered)
    with pytest.raises(UpstreamLost):
        await greeter.greet(TableConnection(server__discover=[DEATH]), Timeouts(), installs=False)


async def came_up(
    greeter: Greeter, to_probe: Any, remembered: bytes = b"", last: Cause | None = None
) -> tuple[list[str], bytes]:
    """One run that comes up. Returns the requests that it was sent, and what is remembered of it."""
    connection = TableConnection(server__discover=[to_probe], initialize=[INITIALIZED])
    greeter.begin(remembered=remembered, last=last)
    greeting = await greeter.greet(connection, Timeouts(), installs=False)
    asked = [said for said, _ in connection.said if not said.startswith("notifications/")]
    return asked, greeting.introduction


@pytest.mark.parametrize("is_next_daemon", [False, True])
async def test_a_server_that_dies_of_the_probe_twice_is_not_probed_again(*, is_next_daemon: bool) -> None:
    greeter, remembered = Greeter(), b""
    for _ in range(2):
        await died(greeter, remembered)
        asked, remembered = await came_up(greeter, DEATH, remembered, last=Cause.EXITED)
        assert asked == ["initialize"]
        greeter = Greeter() if is_next_daemon else greeter
    assert era_in(remembered) == KnownEra(Era.HANDSHAKE, "git 2")
    assert (await came_up(greeter, DEATH, remembered))[0] == ["initialize"]


@cases("last", "asked")
async def test_only_a_death_that_the_probe_may_have_caused_keeps_the_next_run_from_it(
    last: str, asked: list[str]
) -> None:
    greeter = Greeter()
    await died(greeter)
    assert (await came_up(greeter, DISCOVERED, last=Cause(last)))[0] == asked
