"""The table of pages."""

from daemon.console.page_table import ACTIONS, PAGES


def test_no_two_pages_or_actions_have_the_same_address() -> None:
    for known in (PAGES, ACTIONS):
        paths = [each.path for each in known]
        assert len(set(paths)) == len(paths)
