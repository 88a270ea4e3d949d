"""Registries and downloads over real connections."""
