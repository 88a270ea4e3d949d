"""Removes secrets and hidden characters from output."""
