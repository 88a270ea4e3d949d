"""Tests of the console in a real browser, on a real daemon with real servers."""
