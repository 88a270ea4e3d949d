"""How a table of remedies is searched."""

from __future__ import annotations

from daemon.cli.checkup.rows import LINE, SHOWN, Remedy, Row, search

ROWS = (
    Row(r"lost (\w+)(?: in (\w+))?", "Lost: {0} {1}", "Look for {0}, {server}"),
    Row(r"(lost|hurt)", "It is {0}", "Wait!"),
)


def test_the_first_row_that_fits_any_line_counts() -> None:
    assert search(ROWS, ["hurt", "lost keys"], "git") == Remedy("Lost: keys.", "Look for keys, git.")


def test_of_two_lines_the_first_counts() -> None:
    assert search(ROWS, ["lost keys", "lost hats"], "git") == Remedy("Lost: keys.", "Look for keys, git.")


def test_a_group_that_matched_leaves_no_gap_and_one_full_stop() -> None:
    assert search(ROWS, ["lost keys in Rome"], "git") == Remedy("Lost: keys Rome.", "Look for keys, git.")
    assert search(ROWS, ["hurt"], "git") == Remedy("It is hurt.", "Wait!")
    assert search([Row("x(y)?", "It: {0}", "h")], ["x"], "git") == Remedy("It.", "h.")


def test_no_row_that_fits_is_none() -> None:
    assert search(ROWS, ["well"], "git") is None
    assert search(ROWS, [], "git") is None
    assert search([], ["lost keys"], "git") is None


def test_somebody_elses_words_are_cut_and_never_taken_for_a_pattern() -> None:
    rows = [Row("said (.+)", "{0}", "h")]
    assert search(rows, ["said {server} {9} \\1"], "git") == Remedy("{server} {9} \\1.", "h.")
    found = search(rows, [f"said {'x' * LINE}"], "git")
    assert found is not None
    assert found.happened == "x" * SHOWN + "."


def test_what_stands_far_out_in_a_line_is_not_read() -> None:
    assert search(ROWS, [" " * LINE + "lost keys"], "git") is None
