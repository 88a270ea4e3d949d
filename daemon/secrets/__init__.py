"""Secrets that are stored outside the configuration: printed by commands, or in keyrings."""
