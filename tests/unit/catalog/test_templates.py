"""Templates fit what they can become, and none costs more than its length."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.naming import MAX_COMPARED, MAX_URI, Letters, Template, fitting


def fits(text: str, uri: str) -> bool:
    return Template(server="s", text=text).fits(Letters(uri))


@pytest.mark.parametrize(
    ("text", "uri", "whether"),
    [
        ("file:///{path}", "file:///a.txt", True),
        ("file:///{path}", "file:///a/b.txt", False),
        ("file:///{+path}", "file:///a/b.txt", True),
        ("file://{/path*}", "file:///a/b.txt", True),
        ("repo://{owner}/{name}/issues", "repo://a/b/issues", True),
        ("repo://{owner}/{name}/issues", "repo://a/b/pulls", False),
        ("repo://{owner}/{name}/issues", "repo://a/b/c/issues", False),
        ("repo://{+all}/{name}", "repo://a/b/c/d", True),
        ("x://a{?q,p}", "x://a?q=1&p=2", True),
        ("x://a{?q}", "x://a", True),
        ("x://a{?q}{#part}", "x://a?q=/b#c", True),
        ("x://a{#part}", "x://a#b/c?d", True),
        ("x://{name}.{ext}", "x://a.b.c", True),
        ("x://{name}{.ext}", "x://a.b", True),
        ("{+any}", "whatever:/you?like#here", True),
        ("{scheme}://{host}", "http://h", True),
        ("{name}", "é ü", True),
        ("plain:text", "plain:text", True),
        ("plain:text", "plain:texts", False),
        ("x://{open", "x://{open", True),
        ("", "", True),
        ("x:{a}", "x:", True),
    ],
)
def test_a_template_fits_what_it_can_become(text: str, uri: str, whether: bool) -> None:
    assert fits(text, uri) is whether


PARTS = st.one_of(
    st.sampled_from(["{a}", "{+a}", "{/a}", "{?a}", "{#a}", "{.a}"]), st.text("ab/?#.", max_size=3)
)
CLASSES = {"{a}": "[^/?#]*", "{.a}": "[^/?#]*", "{+a}": ".*", "{#a}": ".*", "{/a}": "[^?#]*", "{?a}": "[^#]*"}


@given(st.lists(PARTS, max_size=5), st.text("ab/?#.", max_size=10))
def test_all_ways_are_followed_as_a_regex_would(parts: list[str], uri: str) -> None:
    regex = "".join(CLASSES.get(part, re.escape(part)) for part in parts)
    assert fits("".join(parts), uri) is (re.fullmatch(regex, uri, re.DOTALL) is not None)


def test_the_longest_literal_beginning_comes_first_and_a_tie_keeps_the_order() -> None:
    texts = ["{+any}", "x://{a}", "x://b/{c}", "x://{+d}", "x://b/c{+e}"]
    templates = [Template(server=str(place), text=text) for place, text in enumerate(texts)]
    assert [each.server for each in fitting(templates, "x://b/c")] == ["4", "2", "3", "0"]


def test_a_template_that_was_made_to_take_long_does_not() -> None:
    """A regex would try 2,000 over 100 ways to part these letters."""
    text = "x:" + "{+a}b" * 100 + "c"
    assert not fits(text, "x:" + "b" * 2000)
    assert fits(text, "x:" + "b" * 2000 + "c")


def test_no_more_is_compared_than_the_bounds_say() -> None:
    short = "x:{+a}"
    many = [Template(server=str(place), text=short) for place in range(MAX_COMPARED)]
    assert len(list(fitting(many, "x:y"))) == MAX_COMPARED // len(short)
    assert list(fitting(many, "x:" + "y" * MAX_URI)) == []


def test_long_templates_leave_room_for_those_of_others() -> None:
    long = "x:" + "{+a}" * 1000
    many = [Template(server="long", text=long) for _ in range(1000)]
    found = list(fitting([*many, Template(server="short", text="x:{+a}")], "x:y"))
    assert [each.server for each in found] == ["long"] * (MAX_COMPARED // len(long)) + ["short"]


@pytest.mark.parametrize(
    ("text", "has"), [("x://{a}", True), ("x{a}://b", False), ("{+a}", False), ("x:", True)]
)
def test_a_scheme_counts_if_it_is_literal(text: str, has: bool) -> None:
    assert Template(server="s", text=text).has_scheme is has
