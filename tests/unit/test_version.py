"""The version names the commit of a checkout, and of what was installed from one, unless it is a release."""

from pathlib import Path

import pytest

import daemon
from daemon import __version__, version

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
NAMED = f"{__version__}+g01234567"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that holds the package, and nothing else so far."""
    (tmp_path / "daemon").mkdir()
    monkeypatch.setattr(daemon, "__file__", str(tmp_path / "daemon" / "__init__.py"))
    return tmp_path


def written(root: Path, **files: str) -> None:
    for name, text in files.items():
        place = root / name.replace("__", "/").replace("_", "-")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n")


def test_what_was_installed_from_a_checkout_has_its_commit(root: Path) -> None:
    written(root, daemon__commit=COMMIT)
    assert version() == NAMED


@pytest.mark.parametrize(
    "files",
    [
        {"HEAD": COMMIT},
        {"HEAD": "ref: refs/heads/main", "refs__heads__main": COMMIT},
        {
            "HEAD": "ref: refs/heads/main",
            "packed_refs": f"# pack-refs\n{OTHER} refs/x\n{COMMIT} refs/heads/main",
        },
        {"HEAD": COMMIT, f"refs__tags__v{__version__}": OTHER},
    ],
)
def test_a_checkout_has_its_commit(root: Path, files: dict[str, str]) -> None:
    written(root / ".git", **files)
    assert version() == NAMED


def test_a_worktree_has_its_own_commit(root: Path) -> None:
    own = root / "elsewhere" / "worktrees" / "a"
    (root / ".git").write_text(f"gitdir: {own}\n")
    written(own, HEAD="ref: refs/heads/a", commondir="../..")
    written(root / "elsewhere", HEAD=OTHER, refs__heads__a=COMMIT)
    assert version() == NAMED


@pytest.mark.parametrize(
    "files", [{}, {"HEAD": "ref: refs/heads/main"}, {"HEAD": COMMIT, f"refs__tags__v{__version__}": COMMIT}]
)
def test_a_release_and_a_repository_without_a_commit_have_none(root: Path, files: dict[str, str]) -> None:
    assert version() == __version__
    written(root / ".git", **files)
    assert version() == __version__
