"""What templates get: text of others is marked, times are words, and markers become what a viewer is sent."""

from __future__ import annotations

import time
from importlib.resources import files

import msgspec
import pytest
from markupsafe import Markup

from daemon.console.live import Drawn, Snapshot
from daemon.console.page import Fragment
from daemon.console.rendering import (
    FORM_TOKEN,
    HERE,
    Rendering,
    age,
    by_button,
    clock,
    foreign,
    marked,
    milliseconds,
    sent,
    sent_in_json,
    since,
    size,
    until,
)


@pytest.fixture(scope="module")
def rendering() -> Rendering:
    return Rendering()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("a\u202eb", "a\\u202eb"),
        ("\x1b[2J", "\\x1b[2J"),
        ('" onload="x', "&#34; onload=&#34;x"),
    ],
)
def test_text_of_others_is_escaped_and_marked(text: str, shown: str) -> None:
    assert foreign(text) == Markup(f'<bdi class="foreign">{shown}</bdi>')


def test_lines_of_others_may_stay_lines() -> None:
    assert foreign("a\nb", lines=True) == Markup('<bdi class="foreign">a\nb</bdi>')


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Then `mcpd restart git`.", "Then <code>mcpd restart git</code>."),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("a ` alone", "a ` alone"),
        ("`a\u202eb`", "<code>a\\u202eb</code>"),
    ],
)
def test_what_stands_between_backticks_is_code_and_escaped(text: str, shown: str) -> None:
    assert marked(text) == Markup(f'<bdi class="foreign">{shown}</bdi>')


def test_times_are_machine_readable_and_the_script_knows_which_grow() -> None:
    now = time.time()
    assert str(since(0)).startswith(
        '<time datetime="1970-01-01T00:00:00Z" title="1970-01-01T00:00:00Z" data-since>'
    )
    assert "2m ago" in since(now - 150)
    assert ">2m<" in age(now - 150)
    assert ">in 2m<" in until(now + 170)
    assert "1970" in clock(86400)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "\N{EN DASH}"),
        (0.44, "0.4 ms"),
        (9.99, "10.0 ms"),
        (12.4, "12 ms"),
        (999.4, "999 ms"),
        (3210, "3.2 s"),
    ],
)
def test_latencies_are_short(value: float | None, words: str) -> None:
    assert milliseconds(value) == words


def test_sizes_are_in_words() -> None:
    assert (size(None), size(1536)) == ("\N{EN DASH}", "1.5 KiB")


def test_markers_are_replaced_for_each_viewer(rendering: Rendering) -> None:
    fragment = Fragment(id="x", template="masthead.html", values={"available": 1, "total": 3, "off": 1})
    assert "1 of 3 servers available, 1 off" in rendering.fragment(fragment)
    assert sent(f"{FORM_TOKEN} {HERE}", "t0k3n", '/ui/x?a="') == "t0k3n /ui/x?a=&#34;"


def test_a_command_is_told_by_the_button_that_gives_it() -> None:
    assert by_button("Mend it. Then `mcpd restart git`.", "git") == "Mend it. Then press Restart."
    assert by_button("See `mcpd logs git`.", "git") == "See `mcpd logs git`."


def test_an_address_in_a_stream_is_text_whatever_it_spells() -> None:
    here = '/ui/x?a=\\u0022\\u003e\\"\n\ndata: x'
    told = sent_in_json(msgspec.json.encode({"html": f"{FORM_TOKEN} {HERE}"}).decode(), "t0k3n", here)
    assert "\n" not in told
    assert msgspec.json.decode(told) == {"html": sent(f"{FORM_TOKEN} {HERE}", "t0k3n", here)}


def test_a_holder_draws_its_fragments_inside_its_element(rendering: Rendering) -> None:
    fragment = Fragment(id="servers-available", template="masthead.html", values={})
    snapshot = Snapshot({"masthead": {"servers-available": Drawn(fragment, "<p>here</p>")}})
    values: dict[str, object] = {
        "pages": [], "page": None, "title": "<T>", "path": {}, "query": {}, "notices": [], "live": "",
    }  # fmt: skip
    html = rendering.page("layout.html", snapshot, {**values, "who": "me", "may_change": True, "version": "1"})
    assert '<div id="masthead"><p>here</p></div>' in html
    assert "<title>&lt;T&gt; · mcpd</title>" in html


def test_no_template_has_what_the_policy_forbids_or_shows_text_unescaped() -> None:
    for template in files("daemon.console").joinpath("templates").iterdir():
        source = template.read_text().lower()
        for forbidden in (
            " style=",
            "<style",
            "<script>",
            " onclick",
            " onload",
            "| safe",
            "|safe",
            "autoescape",
        ):
            assert forbidden not in source, (template.name, forbidden)
