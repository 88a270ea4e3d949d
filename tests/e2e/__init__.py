"""Tests with the real daemon as a child, real servers, and clients by other authors."""
