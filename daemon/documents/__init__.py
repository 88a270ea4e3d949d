"""Edits configuration files in place and keeps their layout."""
