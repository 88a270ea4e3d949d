"""Whatever is answered, changed and configured meanwhile, no call is sent that a rule forbids just then."""

from typing import Any

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes_upstream import Client, Sent, tool
from tests.unit.clients.permissions.agreeing import accept, call_of, configure, greeted, stage_of
from tests.waiting import background

ANSWERS: dict[str, Any] = {
    "once": {"result": accept("allow once")},
    "session": {"result": accept("allow for this session")},
    "refuse": {"result": {"action": "decline"}},
    "error": {"error": {"code": -1, "message": "no"}},
}
RULES = ("ask", "deny", "allow")
STEPS = st.lists(st.sampled_from(["call", *ANSWERS, *RULES, "change", "revoke"]), max_size=12)


class Play:
    """One client, one tool, and what is known of both."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.stage = stage_of("full")
        self.rule = "ask"
        self.form = 0
        self.granted: int | None = None
        """Which form of the tool the session may call."""
        self.agreed = False
        """Whether the user has just agreed to the tool as it is now."""
        self.questions: list[tuple[dict[str, Any], int]] = []
        self.sent = 0
        self.stage.alpha.on_send = self.look

    def look(self, _sent: Sent) -> None:
        """A call is sent: it must be allowed now."""
        self.sent += 1
        asks = self.agreed or self.granted == self.form
        assert self.rule == "allow" or (self.rule == "ask" and asks), self.rule

    async def take(self, client: Client, number: int, step: str) -> None:
        """Take one step, and see what comes of it."""
        if step == "call":
            await client.ask("tools/call", call_of("full"), request_id=f"c{number}")
        elif step in RULES:
            self.rule = step
            configure(self.stage, {"match": "alpha/echo", "then": step}, surface="full")
        elif step == "change":
            self.form += 1
            self.stage.lists("alpha", tool("echo", description=f"Form {self.form}."), "add")
        elif step == "revoke":
            self.granted = None
            (state,) = self.stage.sessions.own
            state.grants.revoke([("alpha", "echo")])
        elif self.questions:
            await self.answer(client, step)
        await trio.testing.wait_all_tasks_blocked()
        self.agreed = False
        for sent in self.stage.alpha.sent:
            self.stage.answer(sent)
        self.stage.alpha.sent.clear()
        await client.ask("ping", request_id="ping")
        while (message := await client.get()).get("id") != "ping":
            if message.get("method") == "elicitation/create":
                self.questions.append((message, self.form))

    async def answer(self, client: Client, step: str) -> None:
        """Answer the oldest question."""
        question, form = self.questions.pop(0)
        self.agreed = step in {"once", "session"} and form == self.form
        if step == "session":
            self.granted = form
        await client.send({"jsonrpc": "2.0", "id": question["id"], **ANSWERS[step]})


async def _play(steps: list[str]) -> int:
    async with background() as nursery:
        play = Play(nursery)
        client = await greeted(play.stage, nursery)
        for number, step in enumerate(steps):
            await play.take(client, number, step)
    return play.sent


@given(steps=STEPS)
def test_no_sequence_sends_a_call_that_a_rule_forbids_at_that_moment(steps: list[str]) -> None:
    trio.run(_play, steps)


def test_what_the_rules_allow_is_sent() -> None:
    assert trio.run(_play, ["call", "once", "call", "session", "call", "allow", "call"]) == 4
    assert trio.run(_play, ["call", "refuse", "call", "deny", "once", "call", "ask", "call"]) == 0
