"""What is asked, what is asked again, and what is given up."""

import attrs
import pytest

from daemon.catalog.definitions import tools_digest
from daemon.catalog.snapshot import Catalog, fold
from daemon.facts import Summarized, Switched
from daemon.model import Summary
from daemon.summaries import ledger as module
from daemon.summaries.ledger import GIVE_UP, Ledger
from daemon.summaries.prompt import ModelAnswer, Question
from tests.unit.catalog.samples import after, catalog_of, listed, servers, tool

NOW = 5000.0


def catalog(**tools: list[str]) -> Catalog:
    """Servers with tools."""
    begun = catalog_of({"mcpServers": servers(*tools)})
    return after(begun, [listed(server, *names) for server, names in tools.items()])


def names(question: Question | None) -> list[str]:
    assert question is not None
    return [each.name for each in question.tools]


def all_answered(question: Question) -> ModelAnswer:
    return ModelAnswer(
        server=None if question.overview is None else Summary(text="Does things."),
        tools={each.name: Summary(text=f"Does {each.name}.", keywords=("k",)) for each in question.tools},
    )


def asked(ledger: Ledger, there: Catalog, most: int = 20) -> Question:
    question = ledger.next_question(there, most)
    assert question is not None
    return question


def folded(there: Catalog, ledger: Ledger) -> Catalog:
    for fact in ledger.news(there):
        there = fold(there, fact)
    return there


def test_the_first_question_is_about_a_server_and_its_first_tools() -> None:
    ledger, there = Ledger(), catalog(a=["one", "two", "three"])
    question = asked(ledger, there, 2)
    assert (question.server, question.description) == ("a", "the a server")
    assert names(question) == ["one", "two"]
    assert question.overview is not None
    assert [each.name for each in question.overview] == ["one", "two", "three"]
    assert ledger.waiting(there) == 4


def test_what_was_answered_is_told_whole_and_not_asked_again() -> None:
    ledger, there = Ledger(), catalog(a=["one", "two", "three"])
    hashes = [each.schema_hash for each in (there.servers["a"].tools or {}).values()]
    question = asked(ledger, there, 2)
    ledger.learn(question, all_answered(question), NOW)
    (fact,) = ledger.news(there)
    digest = tools_digest(hashes)
    assert fact.summary == Summary(text="Does things.", of=digest, at=NOW)
    assert fact.sentences == {
        hashes[0]: Summary(text="Does one.", keywords=("k",), of=hashes[0], at=NOW),
        hashes[1]: Summary(text="Does two.", keywords=("k",), of=hashes[1], at=NOW),
    }
    # The fact may be unread when the next one replaces it: that has everything, too.
    question = asked(ledger, there, 2)
    assert (names(question), question.overview) == (["three"], None)
    ledger.learn(question, all_answered(question), NOW)
    (fact,) = ledger.news(there)
    assert set(fact.sentences) == set(hashes)
    assert fact.summary is not None
    assert ledger.next_question(there, 2) is None
    assert list(ledger.news(folded(there, ledger))) == []


def test_what_the_store_has_remembered_is_not_asked() -> None:
    there = catalog(a=["one", "two"])
    one, two = (each.schema_hash for each in (there.servers["a"].tools or {}).values())
    known = Summarized(
        server="a",
        summary=Summary(text="Does.", of=tools_digest([one, two])),
        sentences={one: Summary(text="One.")},
    )
    ledger, there = Ledger(), fold(there, known)
    question = asked(ledger, there)
    assert (names(question), question.overview) == (["two"], None)
    ledger.learn(question, all_answered(question), NOW)
    (fact,) = ledger.news(there)
    assert fact.summary is None
    assert fact.sentences.keys() == {two}
    assert fold(there, fact).servers["a"].sentences.keys() == {one, two}


def test_a_change_costs_a_question_about_what_changed_and_about_the_server() -> None:
    ledger, there = Ledger(), catalog(a=["one", "two"])
    question = asked(ledger, there)
    ledger.learn(question, all_answered(question), NOW)
    there = folded(there, ledger)
    there = after(there, [listed("a", "one", tool("a", "two", description="New."))])
    question = asked(ledger, there)
    assert names(question) == ["two"]
    assert question.overview is not None
    # Another daemon's summary of these tools is newer than what the ledger has of those before.
    of = tools_digest([each.schema_hash for each in (there.servers["a"].tools or {}).values()])
    there = fold(there, Summarized(server="a", summary=Summary(text="Newer.", of=of), sentences={}))
    ledger.learn(question, ModelAnswer(tools=all_answered(question).tools), NOW)
    assert [fact.summary for fact in ledger.news(there)] == [None]


def test_servers_take_turns() -> None:
    ledger, there = Ledger(), catalog(a=["a1", "a2", "a3"], b=["b1", "b2"], c=["c1"])
    order = []
    for _ in range(6):
        question = asked(ledger, there, 1)
        order += names(question)
        ledger.learn(question, all_answered(question), NOW)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert ledger.next_question(there, 1) is None


def test_what_gets_no_answer_is_asked_in_ever_smaller_questions_and_then_given_up() -> None:
    ledger, there = Ledger(), catalog(a=[f"t{n}" for n in range(20)])
    sizes = []
    while (question := ledger.next_question(there, 20)) is not None:
        sizes.append((len(question.tools), question.overview is not None))
        ledger.failed(question)
    assert sizes == [(20, True), *[(5, False)] * 4, *[(1, False)] * 20, *[(0, True)] * (GIVE_UP - 1)]
    assert ledger.given_up == 21
    assert ledger.waiting(there) == 0


def test_a_tool_that_spoils_the_answer_costs_its_neighbours_no_sentence() -> None:
    ledger, there = Ledger(), catalog(a=["good", "bad", "fine"])
    while (question := ledger.next_question(there, 20)) is not None:
        if "bad" in names(question):
            ledger.failed(question)
        else:
            ledger.learn(question, all_answered(question), NOW)
    there = folded(there, ledger)
    said = {each.text for each in there.servers["a"].sentences.values()}
    assert said == {"Does good.", "Does fine."}
    assert there.servers["a"].summary is not None
    assert ledger.given_up == 1


def test_what_was_given_up_is_asked_about_when_it_has_changed() -> None:
    ledger, there = Ledger(), catalog(a=["one"])
    while (question := ledger.next_question(there, 20)) is not None:
        ledger.learn(question, ModelAnswer(), NOW)
    there = after(there, [listed("a", tool("a", "one", description="New."))])
    assert names(ledger.next_question(there, 20)) == ["one"]


def test_what_was_tried_is_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TRIED", 40)
    ledger = Ledger()
    for round_ in range(3):
        there = catalog(a=[f"t{round_}_{n}" for n in range(module.MAX_TRIED // 2)])
        ledger.failed(asked(ledger, there, module.MAX_TRIED))
    assert len(ledger._tried) == module.MAX_TRIED


def test_what_is_switched_off_or_has_no_tools_is_not_asked_about() -> None:
    there = catalog(a=["one"], b=["two", "three"], c=[])
    there = fold(there, Switched(off=frozenset({("a", ""), ("b", "two")})))
    ledger = Ledger()
    question = asked(ledger, there)
    assert (question.server, names(question)) == ("b", ["three"])
    ledger.learn(question, all_answered(question), NOW)
    assert ledger.next_question(there, 20) is None
    assert ledger.waiting(there) == 0
    assert names(ledger.next_question(fold(there, Switched(off=frozenset())), 20)) == ["one"]


def test_an_answer_about_tools_that_went_meanwhile_is_not_told() -> None:
    ledger, there = Ledger(), catalog(a=["one", "two"])
    question = asked(ledger, there)
    there = after(there, [listed("a", "two", "three")])
    ledger.learn(question, all_answered(question), NOW)
    (fact,) = ledger.news(there)
    assert [each.text for each in fact.sentences.values()] == ["Does two."]
    # The server's own sentence is about what it was: better than none, and asked for again.
    assert fact.summary is not None
    assert asked(ledger, folded(there, ledger)).overview is not None


def test_what_the_catalog_has_lost_is_told_again() -> None:
    ledger, there = Ledger(), catalog(a=["one"])
    question = asked(ledger, there)
    ledger.learn(question, all_answered(question), NOW)
    known = folded(there, ledger)
    assert list(ledger.news(known)) == []
    entry = attrs.evolve(known.servers["a"], sentences={}, summary=None)
    lost = attrs.evolve(known, servers={"a": entry})
    assert folded(lost, ledger).servers["a"].sentences == known.servers["a"].sentences


def test_a_server_that_leaves_is_forgotten() -> None:
    ledger, there = Ledger(), catalog(a=["one"], b=["two"])
    question = asked(ledger, there)
    ledger.learn(question, all_answered(question), NOW)
    assert list(ledger.news(catalog(b=["two"]))) == []
    assert list(ledger.news(there)) == []
    assert names(ledger.next_question(there, 20)) == ["one"]
