"""What operators are told of what happened."""

from collections.abc import Callable
from typing import Any

import attrs
import trio.testing

from daemon.catalog.loaded import Loaded, LoadedTool, SessionRecord, Source
from daemon.causes import Cause
from daemon.clients.sessions import SessionState
from daemon.config.redaction import Redactors
from daemon.counting.measures import STDERR_LINES, StderrTail
from daemon.history.event import Event, EventKind
from daemon.history.journal import EventQuery, History
from tests.fakes_upstream import Client
from tests.unit.cases import cases
from tests.unit.operators.stage import SESSION, FakeSession, OperatorStage, clients_of
from tests.waiting import until


class Eventful(OperatorStage):
    """A daemon in which something happens."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History(lambda: 100.0, "host/1/a")

    async def connect(self, nursery: trio.Nursery, **changed: Any) -> Client:
        return await super().connect(nursery, history=self.history, **changed)


async def eventful(nursery: trio.Nursery) -> tuple[Eventful, Client]:
    stage = Eventful()
    return stage, await stage.connect(nursery)


def note(stage: Eventful, server: str = "alpha", kind: EventKind = EventKind.READY, **more: Any) -> None:
    stage.history.note(Event(kind=kind, server=server, **more))


async def ask(client: Client, **params: Any) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.request("events", params))["result"]
    return answer


def numbers(answer: dict[str, Any]) -> list[int]:
    return [event["number"] for event in answer["events"]]


async def test_events_are_the_newest_oldest_first_and_by_what_is_asked_for(nursery: trio.Nursery) -> None:
    stage, client = await eventful(nursery)
    note(stage)
    note(stage, "beta")
    note(stage, kind=EventKind.ENDED, instance="alpha#2", text="killed")
    note(stage, "", session="#4", kind=EventKind.SESSION_BEGAN)

    assert numbers(await ask(client)) == [1, 2, 3, 4]
    assert numbers(await ask(client, limit=2)) == [3, 4]
    assert numbers(await ask(client, server="alpha")) == [1, 3]
    assert numbers(await ask(client, server="alpha#2")) == [3]
    assert numbers(await ask(client, session="#4")) == numbers(await ask(client, session="4")) == [4]
    assert numbers(await ask(client, kinds=["ended"])) == [3]


async def test_people_are_told_of_an_epoch_only_if_they_ask(nursery: trio.Nursery) -> None:
    stage, client = await eventful(nursery)
    note(stage, kind=EventKind.SWITCHED)
    note(stage, kind=EventKind.EPOCH)

    assert numbers(await ask(client)) == [1, 2]
    assert numbers(await ask(client, people=True)) == [1]
    assert numbers(await ask(client, people=True, kinds=["epoch"])) == [2]
    one = (await client.request("status", {"server": "alpha"}))["result"]
    assert [event["kind"] for event in one["events"]] == ["switched"]
    logged = (await client.request("logs", {"server": "alpha", "events": True}))["result"]
    assert [event["kind"] for event in logged["events"]] == ["switched"]


async def test_a_name_that_nobody_has_and_nothing_is_kept_of_is_refused(nursery: trio.Nursery) -> None:
    stage, client = await eventful(nursery)
    note(stage, "gone")
    note(stage, "", session="/home/gone", kind=EventKind.SESSION_BEGAN)
    assert numbers(await ask(client, server="gone")) == [1]
    assert numbers(await ask(client, server="gone", kinds=["ended"])) == []
    assert numbers(await ask(client, server="alpha")) == []
    assert numbers(await ask(client, session="/home/gone", kinds=["ended"])) == []
    for method, params, said in (
        ("events", {"server": "alpah"}, "Did you mean"),
        ("events", {"server": ""}, "no server is named ''"),
        ("events", {"session": "nope"}, "no session is named"),
        ("events", {"kinds": ["endet"]}, "Did you mean ended"),
        ("calls", {"session": "nope"}, "no session is named"),
    ):
        assert said in (await client.request(method, params))["error"]["message"]


async def test_who_goes_on_gets_what_came_since_and_only_once(nursery: trio.Nursery) -> None:
    stage, client = await eventful(nursery)
    note(stage)
    first = await ask(client)
    assert (await ask(client, after=first["next"]))["events"] == []
    note(stage)
    note(stage)

    one = await ask(client, after=first["next"], limit=1)
    rest = await ask(client, after=one["next"])

    assert (numbers(one), one["more"]) == ([2], True)
    assert (numbers(rest), rest["more"]) == ([3], False)


async def test_an_answer_waits_for_what_is_asked_for_and_no_longer(nursery: trio.Nursery) -> None:
    stage, client = await eventful(nursery)
    first = await ask(client, server="alpha")
    answers: list[dict[str, Any]] = []

    async def wait() -> None:
        answers.append(await ask(client, server="alpha", after=first["next"], wait=25))

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    note(stage, "beta")
    await trio.testing.wait_all_tasks_blocked()
    assert not answers
    note(stage)
    with trio.fail_after(30):
        while not answers:
            await trio.lowlevel.checkpoint()
    assert numbers(answers[0]) == [2]


async def test_what_another_daemon_writes_after_the_answer_is_news_however_late(nursery: trio.Nursery) -> None:
    stage, stored = Eventful(), list[Event]()
    stage.history.is_shared = True

    async def read(query: EventQuery) -> list[Event]:
        return [event for event in stored if query.matches(event)]

    stage.history.stored = read
    client = await stage.connect(nursery)

    def by_another(number: int, at: float, life: str = "host/2/b") -> None:
        stored.append(Event(kind=EventKind.READY, server="alpha", number=number, life=life, at=at))

    by_another(1, 20.0)
    by_another(2, 99.5)
    first = await ask(client, limit=1)
    # It happened before the first answer, but was not written by then.
    by_another(3, 99.7)
    second = await ask(client, after=first["next"])
    # That clock is far ahead; what happens here is not older for that.
    by_another(4, 9_000.0)
    third = await ask(client, after=second["next"])
    note(stage)
    by_another(1, 98.0, "host/3/c")
    by_another(5, 99.8)
    fourth = await ask(client, after=third["next"])

    assert [numbers(each) for each in (first, second, third)] == [[2], [3], [4]]
    assert [(event["daemon"], event["number"]) for event in fourth["events"]] == [
        ("host/2/b", 5),
        ("host/1/a", 1),
    ]


def of_tools(**tools: list[str]) -> dict[str, Any]:
    return {"kind": EventKind.LISTS_CHANGED, "details": {"tools": tools}}


def loaded(*names: str, at: float = 50.0) -> Loaded:
    made = (
        LoadedTool(key=("alpha", name), schema_hash="", epoch=1, source=Source.MANUAL, at=at) for name in names
    )
    return Loaded(tools={tool.key: tool for tool in made})


async def test_what_a_session_has_loaded_is_followed_by_its_key_and_its_number(nursery: trio.Nursery) -> None:
    stage = Eventful()
    record = SessionRecord(key="maria", loaded=loaded("echo"), created_at=1.0, seen_at=1.0)
    keyless = attrs.evolve(SESSION, number=4, key=None, own=SessionState(None, loaded("other")))
    maria = attrs.evolve(SESSION, number=3, key="maria")
    clients = clients_of(FakeSession(maria), FakeSession(keyless), in_use=[(record, 1)])
    client = await stage.connect(nursery, clients=clients)
    note(stage, at=40.0, **of_tools(changed=["echo"]))
    note(stage, at=60.0, **of_tools(went=["echo"], changed=["other"]))
    note(stage, "beta", at=70.0, **of_tools(changed=["echo"]))
    note(stage, at=80.0, **of_tools(changed=["another"]))
    note(stage, "beta", EventKind.INSTANCE_BEGAN, session="maria", at=90.0)
    note(stage, "beta", EventKind.INSTANCE_BEGAN, session="#4", at=91.0)

    for name in ("maria", "3", "#3"):
        assert numbers(await ask(client, session=name)) == [2, 5]
    assert numbers(await ask(client, session="4")) == [2, 6]


async def test_a_connection_that_has_left_is_found_by_its_number_under_its_key(nursery: trio.Nursery) -> None:
    stage = Eventful()
    client = await stage.connect(nursery, clients=clients_of())
    note(stage, "", EventKind.SESSION_BEGAN, session="maria", details={"connection": 12})
    note(stage, "", EventKind.SESSION_ENDED, session="maria")
    assert numbers(await ask(client, session="12")) == [1, 2]


def failed(stage: Eventful, run: int, status: int = 1, **more: Any) -> None:
    if "seconds" not in more:
        note(stage, kind=EventKind.STARTED, run=run, at=10.0 * run)
    note(
        stage,
        kind=EventKind.ENDED,
        run=run,
        at=10.0 * run + 1,
        text=f"exited with status {status}",
        cause=Cause.EXITED,
        cause_data={"status": status},
        details={"state": "backoff", "retrySeconds": 60.0, **more},
    )


async def test_retries_of_a_dead_server_are_one_row_with_the_diagnosis(nursery: trio.Nursery) -> None:
    stage, client = await eventful(nursery)
    docker = ["docker: Cannot connect to the Docker daemon at unix:///x.sock.", "Run 'docker run --help'"]
    for run in range(1, 40):
        failed(stage, run, stderr=docker, happened="Docker's service is not running.")
        note(stage, "beta", EventKind.SWITCHED, at=10.0 * run + 2, details={"what": "beta", "on": True})
    failed(stage, 40, status=2)
    told = [
        event for event in (await ask(client, people=True, limit=500))["events"] if event["server"] == "alpha"
    ]
    assert [(event["kind"], event["run"]) for event in told] == [("ended", 39), ("ended", 40)]
    assert told[0]["message"].startswith("alpha: tried 39 times since ")
    assert told[0]["message"].endswith(", next in 1m: Docker's service is not running")
    assert told[1]["message"].startswith("alpha: tried once, ")
    assert len((await ask(client, limit=500))["events"]) == 3 * 39 + 2


async def test_a_row_of_retries_counts_those_that_are_no_longer_looked_at(nursery: trio.Nursery) -> None:
    stage, client = await eventful(nursery)
    failed(stage, 700, attempt=700, awaySince=5.0)
    note(stage, kind=EventKind.HOST_REFUSED, at=7005.0, details={"host": "h", "port": 1})
    failed(stage, 701, attempt=701, awaySince=5.0)
    note(stage, kind=EventKind.STARTED, run=702, at=7020.0)
    _, row = (await ask(client, people=True))["events"]
    assert (row["details"]["times"], row["details"]["firstAt"]) == (701, 5.0)


async def test_a_server_that_serves_for_moments_between_its_ends_is_one_row(nursery: trio.Nursery) -> None:
    stage, client = await eventful(nursery)
    for run in (1, 2, 3):
        note(stage, kind=EventKind.STARTED, run=run, at=10.0 * run)
        note(stage, run=run, at=10.0 * run)
        failed(stage, run, seconds=3.0)
    told = (await ask(client, people=True))["events"]
    assert [(event["kind"], event["run"]) for event in told] == [("started", 1), ("ready", 1), ("ended", 3)]
    assert " 3 times since " in told[2]["message"]


async def test_a_restart_or_a_run_that_came_up_in_between_begins_another_row(nursery: trio.Nursery) -> None:
    stage, client = await eventful(nursery)
    failed(stage, 1)
    note(stage, kind=EventKind.RESTARTED, at=15.0, details={"by": "operator"})
    failed(stage, 2)
    note(stage, kind=EventKind.STARTED, run=3, at=30.0)
    note(stage, run=3, at=30.5)
    failed(stage, 3, seconds=100.0)
    kinds = [event["kind"] for event in (await ask(client, people=True))["events"]]
    assert kinds == ["ended", "restarted", "ended", "ready", "ended"]


class Chatty(OperatorStage):
    """A daemon whose servers have written on their stderr."""

    def write(self, *texts: str) -> None:
        for text in texts:
            self.alpha.stderr.add(text)

    async def connect(self, nursery: trio.Nursery, **changed: Any) -> Client:
        return await super().connect(nursery, redact=Redactors(["hunter2"]), **changed)


def numbered(page: dict[str, Any]) -> list[tuple[int, str]]:
    return [(line["n"], line["text"]) for line in page["lines"]]


async def test_logs_are_a_servers_lines_with_their_numbers_and_without_secrets(nursery: trio.Nursery) -> None:
    chatty = Chatty()
    chatty.write("one", "password hunter2", "\x1b[2Jthree")
    client = await chatty.connect(nursery)
    page = (await client.request("logs", {"server": "alpha"}))["result"]
    assert numbered(page) == [(1, "one"), (2, "password [redacted]"), (3, "\x1b[2Jthree")]
    assert (page["server"], page["type"], page["next"], page["dropped"]) == ("alpha", "stdio", 3, 0)
    page = (await client.request("logs", {"server": "alpha", "last": 1}))["result"]
    assert numbered(page) == [(3, "\x1b[2Jthree")]
    counted = (await client.request("logs"))["result"]
    assert counted == {"servers": {"alpha": {"lines": 3}, "beta": {"lines": 0}}}


async def test_logs_go_on_after_a_line_and_count_what_was_missed(nursery: trio.Nursery) -> None:
    chatty = Chatty()
    chatty.write("one", "two")
    client = await chatty.connect(nursery)
    seen = (await client.request("logs", {"server": "alpha"}))["result"]
    following = {"server": "alpha", "after": seen["next"], "source": seen["source"]}
    assert (await client.request("logs", following))["result"]["lines"] == []
    chatty.write("three")
    later = (await client.request("logs", following))["result"]
    assert (numbered(later), later["dropped"]) == ([(3, "three")], 0)
    chatty.write(*map(str, range(STDERR_LINES + 5)))
    flood = (await client.request("logs", {"server": "alpha", "after": 3, "source": seen["source"]}))["result"]
    assert (len(flood["lines"]), flood["dropped"]) == (STDERR_LINES, 5)
    # Numbers of another life are not counted from.
    chatty.alpha.stderr = StderrTail()
    chatty.write("new")
    reborn = (await client.request("logs", following))["result"]
    assert (numbered(reborn), reborn["dropped"]) == ([(1, "new")], 0)
    assert reborn["source"] != seen["source"]


@cases("params", "said")
async def test_impossible_logs_are_refused(nursery: trio.Nursery, params: dict[str, Any], said: str) -> None:
    client = await Chatty().connect(nursery)
    assert said in (await client.request("logs", params))["error"]["message"]


async def test_who_waits_is_answered_with_the_next_line_and_with_what_happens(nursery: trio.Nursery) -> None:
    chatty, history = Chatty(), History(lambda: 100.0)
    chatty.write("one")
    client = await chatty.connect(nursery, history=history)
    seen = (await client.request("logs", {"server": "alpha", "events": True}))["result"]
    answers: list[dict[str, Any]] = []

    async def follow() -> None:
        nonlocal seen
        asked = {"after": seen["next"], "source": seen["source"], "eventsAfter": seen["eventsNext"]}
        wanted = {"server": "alpha", "events": True, "wait": 25}
        seen = (await client.request("logs", {**wanted, **asked}))["result"]
        answers.append(seen)

    happenings: tuple[Callable[[], object], ...] = (
        lambda: chatty.write("two"),
        lambda: history.note(Event(kind=EventKind.READY, server="alpha")),
    )
    for happens in happenings:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        history.note(Event(kind=EventKind.READY, server="beta"))
        await trio.testing.wait_all_tasks_blocked()
        waited = len(answers)
        happens()
        await until(lambda: len(answers) > waited)  # noqa: B023

    assert [numbered(answer) for answer in answers] == [[(2, "two")], []]
    assert [[event["server"] for event in answer["events"]] for answer in answers] == [[], ["alpha"]]
