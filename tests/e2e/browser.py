"""A fast stand-in for a browser, which agrees to everything: `BROWSER="python -S browser.py %s"`."""

import sys
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

PAGE_SECONDS = 180.0


class Form(HTMLParser):
    """The first form of a page, filled in with its defaults, and with a name if it asks for one."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form" and self.action is None:
            self.action = given.get("action") or ""
        if tag == "input" and (name := given.get("name")):
            self.fields[name] = given.get("value") or "somebody"


def agree(url: str) -> None:
    """Open a link, and send each form that comes, until none comes."""
    browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))
    sent: bytes | None = None
    while True:
        with browser.open(url, sent, timeout=PAGE_SECONDS) as page:
            form = Form(page.read().decode())
            if form.action is None:
                return
            url, sent = urljoin(page.url, form.action), urlencode(form.fields).encode()


if __name__ == "__main__":
    agree(sys.argv[1])
