"""Tests of what the doctor looks at."""
