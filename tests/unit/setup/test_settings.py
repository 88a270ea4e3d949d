"""One key of the configuration is changed where it stands, and nothing else."""

import json
from pathlib import Path

import pytest
from msgspec import UNSET

from daemon.documents.files import DocumentError
from daemon.errors import ConfigError
from daemon.setup.settings import Setting, edited
from tests.unit.setup.machines import put

WRITTEN = """{
  // mine
  "lazy": true, // the master switch
  "profiles": {
    "reader": {"surface": "browse", /* on purpose */ "lazy": true},
  },
}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return put(tmp_path / "mcpd.json", WRITTEN)


def change(config: Path, *trail: str, value: object) -> str:
    edit = edited(config, [Setting(trail=trail, value=value)], {})
    edit.write()
    return edit.places[0].file.read_text()


def test_comments_order_and_layout_stay(config: Path) -> None:
    assert change(config, "lazy", value=False) == WRITTEN.replace('"lazy": true, //', '"lazy": false, //')
    now = change(config, "profiles", "reader", "lazy", value=False)
    assert '/* on purpose */ "lazy": false}' in now
    assert "// the master switch" in now


def test_a_key_that_is_unset_is_gone_and_with_it_an_object_that_has_nothing_else(config: Path) -> None:
    assert '"lazy": true, //' not in change(config, "lazy", value=UNSET)
    for comment in ("/* mine */", "// mine\n"):
        put(config, f'{{"profiles": {{"default": {{{comment} "lazy": true}}}}}}')
        assert comment in change(config, "profiles", "default", "lazy", value=UNSET)


@pytest.mark.parametrize("text", [WRITTEN, '{"profiles": {"reader": {}}}', "{}", "{ // mine\n}"])
@pytest.mark.parametrize(
    "trail",
    [("profiles", "default", "toolDescriptionOverrides", "log"), ("profiles", "default", "instructions")],
)
def test_what_was_added_is_taken_away_again_byte_for_byte(
    config: Path, text: str, trail: tuple[str, ...]
) -> None:
    put(config, text)
    assert change(config, *trail, value="Shows what was done.") != text
    assert change(config, *trail, value=UNSET) == text


def test_objects_on_the_way_are_made(config: Path) -> None:
    now = change(config, "profiles", "reader", "toolDescriptionOverrides", "log", value="Shows what was done.")
    assert '"toolDescriptionOverrides": {"log": "Shows what was done."}' in now
    edit = edited(config, [Setting(trail=("profiles", "default", "lazy"), value=False)], {})
    assert '"default": {' in edit.changed[0].text
    assert edit.places[0].key == "$.profiles.default.lazy"


def test_keys_of_several_files_are_written_together_or_not_at_all(config: Path) -> None:
    own = put(config.parent / "profiles.d" / "writer.json", "{}")
    wanted = [
        Setting(trail=("lazy",), value=False),
        Setting(trail=("watch",), value=True),
        Setting(trail=("profiles", "writer", "lazy"), value=False),
    ]
    own.chmod(0o400)
    with pytest.raises(DocumentError, match=r"writer\.json is read-only"):
        edited(config, wanted, {}).write()
    assert config.read_text() == WRITTEN
    own.chmod(0o600)
    edit = edited(config, wanted, {})
    edit.write()
    assert [each.key for each in edit.places] == ["$.lazy", "$.watch", "$.lazy"]
    assert '"watch": true' in config.read_text()
    assert json.loads(own.read_text()) == {"lazy": False}
    edit.undo()
    assert (config.read_text(), own.read_text()) == (WRITTEN, "{}")


def test_a_profile_in_a_file_of_its_own_is_changed_there(config: Path) -> None:
    own = put(config.parent / "profiles.d" / "writer.json", '{\n  "lazy": true // here\n}\n')
    edit = edited(config, [Setting(trail=("profiles", "writer", "lazy"), value=False)], {})
    edit.write()
    assert own.read_text() == '{\n  "lazy": false // here\n}\n'
    assert config.read_text() == WRITTEN
    with pytest.raises(ConfigError, match="surface"):
        edited(config, [Setting(trail=("profiles", "writer", "surface"), value="wrong")], {})


def test_a_name_of_a_profile_is_no_path(config: Path) -> None:
    outside = put(config.parent / "outside.json", "{}")
    change(config, "profiles", "../outside", "lazy", value=False)
    assert outside.read_text() == "{}"


def test_a_faulty_value_is_refused_with_its_fault_and_a_faulty_configuration_left_alone(config: Path) -> None:
    for value in ("no", 3, None):
        with pytest.raises(ConfigError, match=r"\$\.lazy.*true or false"):
            edited(config, [Setting(trail=("lazy",), value=value)], {})
        assert config.read_text() == WRITTEN
    put(config, {"lazzy": True})
    with pytest.raises(ConfigError, match="lazzy"):
        edited(config, [Setting(trail=("lazy",), value=False)], {})
