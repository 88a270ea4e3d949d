"""Each promise of `docs/security.md` is kept by code, and held by tests, that exist: `promises.toml`."""

import re
import tomllib
from pathlib import Path

from tests.modules import functions_in

ROOT = Path(__file__).parents[2]
TEXTS = dict(
    re.findall(r"^- \*\*(S\d+)\*\* (\S.*)$", (ROOT / "docs" / "security.md").read_text(), re.MULTILINE)
)
PROMISES = tomllib.loads(Path(__file__).with_name("promises.toml").read_text())
EXPECTED = [*(f"S{number}" for number in range(1, 13)), "S14", *(f"S{number}" for number in range(16, 52))]


def test_each_promise_stands_in_the_document_and_in_the_list() -> None:
    assert list(TEXTS) == list(PROMISES) == EXPECTED


def test_a_promise_is_kept_by_code_that_exists_and_held_by_tests_that_exist() -> None:
    for number in EXPECTED:
        kept, held = PROMISES[number]["kept"], PROMISES[number]["held"]
        assert kept, number
        assert held, number
        assert not [place for place in kept if not (ROOT / place).is_file()], number
        for test in held:
            path, _, name = test.partition("::")
            assert name in functions_in(path), test
