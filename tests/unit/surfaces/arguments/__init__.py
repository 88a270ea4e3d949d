"""Tests of the room arguments."""
