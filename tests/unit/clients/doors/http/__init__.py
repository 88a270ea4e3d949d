"""Tests of daemon/clients/doors."""
