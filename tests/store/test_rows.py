"""Between values and cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as some

from daemon.store import rows
from daemon.store.rows import AT_ONCE, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE])
def test_chunks_are_everything_in_order(count: int) -> None:
    chunks = list(rows.chunks(range(count)))
    assert [each for chunk in chunks for each in chunk] == list(range(count))
    assert all(0 < len(chunk) <= AT_ONCE for chunk in chunks)


@given(some.text(alphabet=some.characters(codec=None)))
def test_clean_text_can_be_kept_and_stays_as_it_is(text: str) -> None:
    cleaned = rows.clean(text)
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert rows.clean(cleaned) == cleaned


@given(some.text())
def test_ordinary_text_is_not_changed(text: str) -> None:
    assert rows.clean(text) == text.replace("\0", "\ufffd")


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (rows.text, "x", (None, 1, b"x")),
        (rows.number, 1.5, (None, "1", b"1")),
        (rows.whole, 7, (None, "7", 7.0, -1)),
        (rows.some_text, "x", (1, b"x")),
    ],
)
def test_a_cell_is_read_as_what_it_should_be_or_not_at_all(
    read: Callable[[object, str], object], good: object, bad: tuple[object, ...]
) -> None:
    assert read(good, "it") == good
    for value in bad:
        with pytest.raises(Unreadable, match=r"^it is no"):
            read(value, "it")


def test_no_sentence_is_no_summary() -> None:
    assert rows.summary(None, "garbage", None, None) is None


@pytest.mark.parametrize("keywords", ["{", "1", '"x"', "[1]", None, b"[]"])
def test_keywords_that_are_no_list_of_words_are_unreadable(keywords: object) -> None:
    with pytest.raises(Unreadable, match="keywords"):
        rows.summary("it reads", keywords, "x", 1.0)
