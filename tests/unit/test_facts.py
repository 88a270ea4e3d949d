"""Facts are comparable, and harmless when printed."""

from daemon.facts import Summarized, Switched
from daemon.model import Summary
from tests.unit.catalog.samples import configured, recalled, servers, switched


def test_printing_a_memory_leaves_its_tools_and_sentences_out() -> None:
    sentences = {"0" * 64: Summary(text="shows commits")}
    shown = repr(recalled("git", "git_log", sentences=sentences))
    assert "git_log" not in shown
    assert "shows commits" not in shown
    assert "shows commits" not in repr(Summarized(server="git", sentences=sentences))


def test_printing_a_configuration_that_came_leaves_it_out() -> None:
    fact = configured({"mcpServers": {"git": {**servers("git")["git"], "env": {"TOKEN": "s3cret"}}}})
    assert "s3cret" not in repr(fact)
    assert "git" not in repr(fact)


def test_words_of_operators_are_compared_as_a_whole() -> None:
    assert (
        switched("git", "fs/read")
        == switched("fs/read", "git")
        == Switched(off=frozenset({("git", ""), ("fs", "read")}))
    )
    assert switched("git") != switched("git/log")
