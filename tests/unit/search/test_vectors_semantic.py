"""The blend of both halves, and that nothing of the extra is imported before somebody asks for it."""

from __future__ import annotations

import subprocess
import sys
from statistics import pstdev

import pytest

from daemon.search.index import DENSE_WEIGHT, DEPTH, UNAIDED_COSINE, fuse
from daemon.search.vectors import INSTALL

A, B, C, D = (("s", name) for name in "abcd")


def test_without_cosines_the_lexical_order_stands() -> None:
    assert list(fuse({A: 1.0, B: 3.0, C: 2.0}, {})) == [B, C, A]


def test_a_tool_gains_by_how_far_it_stands_out_in_each_half() -> None:
    scores = fuse({A: 8.0, B: 4.0}, {B: 0.5, C: 0.3, D: 0.1})
    spread = pstdev([8.0, 4.0, *[0.0] * (DEPTH - 2)])
    nearest = 0.4 / pstdev([0.5, 0.3, 0.1])
    assert scores == pytest.approx(
        {A: 8 / spread, B: 4 / spread + DENSE_WEIGHT * nearest, C: DENSE_WEIGHT * nearest / 2}
    )


def test_of_many_only_those_count_that_are_better_than_the_last_of_the_best() -> None:
    lexical = {("s", f"{number:02}"): float(number) for number in range(DEPTH * 2)}
    scores = fuse(lexical, {A: 0.3})
    assert set(scores) == {("s", f"{number:02}") for number in range(DEPTH + 1, DEPTH * 2)} | {A}


def test_a_tool_without_a_word_in_common_is_found_among_the_others() -> None:
    assert list(fuse({A: 8.0, B: 1.0}, {C: 0.9, D: 0.1})) == [A, C, B]


@pytest.mark.parametrize("factor", [0.01, 1.0, 1000.0])
def test_the_scale_of_lexical_scores_does_not_matter(factor: float) -> None:
    scores = fuse({A: 3 * factor, B: 2 * factor}, {B: 0.4, C: 0.3, D: 0.2}, weight=1.0)
    assert scores == pytest.approx(fuse({A: 3.0, B: 2.0}, {B: 0.4, C: 0.3, D: 0.2}, weight=1.0))


def test_a_weight_decides_how_much_nearness_counts() -> None:
    assert list(fuse({A: 1.0, B: 0.5}, {B: 0.9, C: 0.1}, weight=1.0)) == [A, B]
    assert list(fuse({A: 1.0, B: 0.5}, {B: 0.9, C: 0.1}, weight=3.0)) == [B, A]


def test_equal_scores_keep_the_order_they_came_in() -> None:
    assert list(fuse({C: 1.0, A: 1.0, B: 1.0}, {})) == [C, A, B]


def test_one_near_tool_is_the_nearest() -> None:
    assert fuse({A: 2.0}, {A: 0.2})[A] - fuse({A: 2.0}, {})[A] == pytest.approx(DENSE_WEIGHT)


def test_without_words_in_common_only_what_is_really_near_is_found() -> None:
    dense = {A: UNAIDED_COSINE, B: UNAIDED_COSINE + 0.2, C: UNAIDED_COSINE - 0.01}
    assert list(fuse({}, dense)) == [B, A]


def test_nothing_is_found_where_nothing_fits() -> None:
    assert fuse({}, {}) == {}
    assert fuse({}, {A: 0.1}) == {}


def test_lexical_scores_of_zero_are_no_fault() -> None:
    assert list(fuse({A: 0.0}, {B: 0.5, A: 0.1})) == [B, A]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.process
def test_nothing_of_the_extra_is_imported_before_it_is_asked_for() -> None:
    """Its packages cost 0.15 s and 20 MiB, which a daemon without the extra never pays."""
    code = (
        "import sys, daemon.tree.running, daemon.search.vectors;"
        "extra = {'numpy', 'tokenizers', 'wordllama', 'daemon.search.semantic_static'};"
        "print(extra & set(sys.modules) or 'none')"
    )
    assert run(code) == "none"


@pytest.mark.parametrize("missing", ["numpy", "tokenizers", "wordllama"])
@pytest.mark.process
def test_without_the_extra_the_refusal_says_what_to_install(missing: str) -> None:
    """A fresh interpreter that cannot find this one package, whether it is installed or not."""
    code = f"""
import sys
from daemon.search.vectors import SemanticUnavailable, open_encoder

class Blind:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name == {missing!r} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Blind(finder) for finder in sys.meta_path]
try:
    open_encoder(None)
except SemanticUnavailable as refusal:
    print(refusal)
"""
    assert run(code).endswith(INSTALL)
