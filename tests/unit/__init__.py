"""Tests that mirror daemon/, no process, no network, no database server: `make check` runs them."""
