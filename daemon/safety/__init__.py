"""Keeps secrets and hidden characters out of whatever is shown, logged or handed to a model."""
