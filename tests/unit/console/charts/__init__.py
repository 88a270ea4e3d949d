"""Tests of daemon/console/charts."""
