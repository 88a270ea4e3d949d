"""`scripts/house` counts what the house is meant to be: each count on a small tree, and that a limit is one."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSE = runpy.run_path(str(ROOT / "scripts" / "house"))

WIDE = ", ".join(f"a{number}" for number in range(9))


def built(root: Path, files: dict[str, str]) -> Path:
    """A house with these files, and at least one in each of its three parts."""
    for path, source in {"daemon/__init__.py": "", "tests/a.py": "", "bench/a.py": "", **files}.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source)
    return root


def counted(root: Path, files: dict[str, str], what: str) -> tuple[float, list[str]]:
    """How much there is of something, and what is over."""
    ((_, count, _, over),) = [row for row in HOUSE["look"](built(root, files)) if row[0].startswith(what)]
    return count, over


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("x = 1\n", 1),
        ("x = (\n    1,\n\n)\n", 3),
        ("# why\n\nx = 1  # and so on\n", 1),
        ('"""Words."""\n\n\ndef f():\n    """More\n    words."""\n    return 1\n', 2),
        ('x = 1\n"""What it is."""\n', 1),
        ('x = """a\nb"""\n', 2),
    ],
)
def test_code_is_what_is_neither_blank_nor_comment_nor_docstring(
    source: str, lines: int, tmp_path: Path
) -> None:
    assert counted(tmp_path, {"daemon/a.py": source}, "code lines of daemon/")[0] == lines


def test_modules_are_counted_and_those_that_stand_loose(tmp_path: Path) -> None:
    files = {"daemon/a.py": "", "daemon/b/__init__.py": "", "daemon/b/c.py": ""}
    assert counted(tmp_path, files, "modules")[0] == 4
    assert counted(tmp_path, files, "loose modules") == (1, ["daemon.a"])


@pytest.mark.parametrize(
    ("files", "floors"),
    [
        ({"daemon/a.py": "", "daemon/b.py": ""}, 1),
        ({"daemon/a.py": "", "daemon/b.py": "import daemon.a", "daemon/c.py": "from daemon import a, b"}, 3),
        ({"daemon/a/__init__.py": "", "daemon/a/x.py": "", "daemon/b/y.py": "from ..a import x"}, 2),
        ({"daemon/a/x.py": "", "daemon/a/y.py": "import daemon.a.x", "daemon/b.py": "import os"}, 1),
        ({"daemon/a.py": "def f():\n    import daemon.b", "daemon/b.py": ""}, 2),
        ({"daemon/a.py": "import daemon.b", "daemon/b.py": "import daemon.a"}, float("inf")),
    ],
)
def test_floors_are_the_longest_way_of_imports_from_room_to_room(
    files: dict[str, str], floors: float, tmp_path: Path
) -> None:
    assert counted(tmp_path, files, "floors")[0] == floors


def test_the_largest_class_and_the_widest_constructor_are_named(tmp_path: Path) -> None:
    large = "class A:\n" + "".join(f"    def m{number}(self): ...\n" for number in range(21))
    wide = f"class B:\n    def __init__(self, {WIDE}): ...\n"
    files = {"daemon/a.py": large, "daemon/b.py": wide}
    assert counted(tmp_path, files, "methods") == (21, ["21 A of daemon.a"])
    assert counted(tmp_path, files, "parameters") == (9, ["9 B of daemon.b"])


def test_a_class_name_is_used_once(tmp_path: Path) -> None:
    files = {
        "daemon/a.py": "class A: ...",
        "daemon/b.py": "class A: ...\nclass B: ...",
        "tests/b.py": "class B: ...",
    }
    assert counted(tmp_path, files, "class names") == (1, ["A: daemon.a, daemon.b"])


def test_long_modules_are_named(tmp_path: Path) -> None:
    files = {"daemon/a.py": "x = 1\n" * 401, "daemon/b.py": '"""Words."""\n' + "x = 1\n" * 400}
    assert counted(tmp_path, files, "code lines of the longest module") == (401, ["401 daemon.a"])


def test_tests_and_bench_are_weighed(tmp_path: Path) -> None:
    files = {"daemon/a.py": "x = 1\n" * 10, "tests/a.py": "x = 1\n" * 17, "bench/a.py": "x = 1\n" * 3}
    assert counted(tmp_path, files, "code lines of tests/")[0] == 1.7
    assert counted(tmp_path, files, "code lines of bench/")[0] == 3


def test_the_exit_status_tells_whether_all_is_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built(tmp_path, {"daemon/a.py": "class A: ...\n"})
    assert HOUSE["main"]([str(tmp_path)]) == 0
    assert "OVER" not in capsys.readouterr().out
    built(tmp_path, {"daemon/b.py": "class A: ...\n"})
    assert HOUSE["main"]([str(tmp_path), "--list"]) == 1
    said = capsys.readouterr().out
    assert said.count("OVER") == 1
    assert "    A: daemon.a, daemon.b\n" in said
