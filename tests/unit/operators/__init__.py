"""Tests of the commands that operators have."""
