"""What tests of charts look at: a chart is well-formed, and holds nothing that a strict policy would refuse."""

import xml.etree.ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"


def drawn(chart: str) -> ET.Element:
    """A chart's elements, after what holds for each chart."""
    root = ET.fromstring(chart)
    ids = [each.attrib["id"] for each in root.iter() if "id" in each.attrib]
    assert len(ids) == len(set(ids))
    for each in root.iter():
        assert "style" not in each.attrib
        assert not [name for name in each.attrib if name.startswith("on")]
    for image in root.iter(f"{SVG}svg"):
        assert image.attrib["role"] == "img"
        assert image.attrib["viewBox"]
        named = image.attrib["aria-labelledby"].split()
        assert {image[0].attrib["id"], image[1].attrib["id"]} == set(named)
        assert all(child.text for child in image[:2])
    assert not [tag for tag in root.iter() if tag.tag.endswith("script")]
    return root


def paths(chart: str, kind: str) -> list[str]:
    """The paths of a class."""
    found = drawn(chart).iter(f"{SVG}path")
    return [each.attrib["d"] for each in found if kind in each.attrib["class"].split()]


def described(chart: str) -> str:
    """What the first image says in words."""
    said = next(drawn(chart).iter(f"{SVG}desc")).text
    assert said is not None
    return said


def rows(chart: str) -> list[list[str]]:
    """The table of numbers, without its head."""
    body = next(drawn(chart).iter("tbody"))
    return [["".join(cell.itertext()) for cell in row] for row in body]
