"""What a page is made of."""

from daemon.console.page import Fragment


def test_fragments_of_the_same_values_are_equal() -> None:
    assert Fragment(id="a", template="t", values={"n": 1}) == Fragment(id="a", template="t", values={"n": 1})
    assert Fragment(id="a", template="t", values={"n": 1}) != Fragment(id="a", template="t", values={"n": 2})
