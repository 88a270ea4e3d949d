"""Logging in to servers that want OAuth, and what is kept of a login."""
