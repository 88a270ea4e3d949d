"""A browser that agrees to everything and follows redirects, as quick to start as can be: `browser.py URL`."""

import sys
import urllib.request

if __name__ == "__main__":
    with urllib.request.urlopen(sys.argv[1], timeout=30) as page:
        page.read()
