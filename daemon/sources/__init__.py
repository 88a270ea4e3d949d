"""Servers that others publish, in registries and as bundles."""
