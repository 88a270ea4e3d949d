"""Versions stand in the order of their registry: semver for npm, PEP 440 for PyPI."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from daemon.setup.adding import is_newer
from tests.unit.cases import cases

ORDERS = {
    "pypi": "1.0.dev1 1.0a1.dev2 1.0a1 1.0b2 1.0rc1 1.0 1.0.post1 1.0.1 1.9 1.10 2026.1 1!0.1",
    "npm": "1.0.0-0 1.0.0-9 1.0.0-10 1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2"
    " 1.0.0-beta.11 1.0.0-rc.1 1.0.0 1.0.1 1.9.0 1.10.0",
}


@pytest.mark.parametrize("source", ORDERS)
def test_each_version_is_newer_than_those_before_it_alone(source: str) -> None:
    versions = ORDERS[source].split()
    newer = [pair for pair in product(versions, repeat=2) if is_newer(pair[0], pair[1], source)]
    assert newer == [
        pair for pair in product(versions, repeat=2) if versions.index(pair[0]) > versions.index(pair[1])
    ]


@cases("one", "other", "source")
def test_spellings_of_a_version_are_one(one: str, other: str, source: str) -> None:
    assert not is_newer(one, other, source)
    assert not is_newer(other, one, source)


PARTS = (
    st.sampled_from(["", "1!"]),
    st.lists(st.integers(0, 11).map(str), min_size=1, max_size=3).map(".".join),
    st.sampled_from(["", "a1", "b2", "rc1", "rc10"]),
    st.sampled_from(["", ".post1", ".post2"]),
    st.sampled_from(["", ".dev1", ".dev11"]),
)
VERSIONS = st.tuples(*PARTS).map("".join)


@given(VERSIONS, VERSIONS)
def test_pythons_order_is_that_of_its_own_tools(one: str, other: str) -> None:
    assert is_newer(one, other, "pypi") == (Version(one) > Version(other))
