"""The formats of documents: one way to read, put and remove, whichever a file is written in."""

import pytest

from daemon.documents.formats import Format, read_document
from daemon.errors import ConfigError


@pytest.mark.parametrize("form", list(Format))
def test_every_format_is_read_changed_and_written(form: Format) -> None:
    document = read_document("", form, source="x")
    document.put(("servers", "time"), {"command": "uvx", "args": ["a"], "env": {"K": "V"}})
    again = read_document(document.text(), form, source="x")
    assert again.value() == {"servers": {"time": {"command": "uvx", "args": ["a"], "env": {"K": "V"}}}}
    again.remove(("servers", "time", "env"))
    again.remove(("servers", "none"))
    assert again.value() == {"servers": {"time": {"command": "uvx", "args": ["a"]}}}


@pytest.mark.parametrize("form", list(Format))
def test_what_is_not_of_the_format_is_a_fault_with_its_place(form: Format) -> None:
    with pytest.raises(ConfigError) as caught:
        read_document('a: 1\n]{"', form, source="x")
    assert caught.value.faults[0].line
