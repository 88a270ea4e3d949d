"""The Containerfile agrees with the manifest for Kubernetes, and copies files that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "Containerfile").read_text()
MANIFEST = (ROOT / "config" / "kubernetes.yaml").read_text()


def test_it_runs_as_the_user_of_the_manifest_with_its_directories() -> None:
    user = re.search(r"useradd --uid (\d+) --gid (\d+)", CONTAINERFILE)
    assert user is not None
    assert f"runAsUser: {user[1]}" in MANIFEST
    assert f"runAsGroup: {user[2]}" in MANIFEST
    for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        value = re.search(rf"\b{name}=(\S+)", CONTAINERFILE)
        assert value is not None
        assert f"name: {name}, value: {value[1]} }}" in MANIFEST
    assert CONTAINERFILE.index("\nUSER mcpd\n") < CONTAINERFILE.index("\nENTRYPOINT ")


def test_what_it_copies_is_there() -> None:
    named = re.findall(r"\b(requirements/\S+\.txt)", CONTAINERFILE)
    assert named
    assert all((ROOT / name).is_file() for name in named)
