"""Tests of daemon/clients/doors/http."""
