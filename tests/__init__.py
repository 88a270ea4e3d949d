"""The tests: the tree mirrors daemon/; faults/ injects failures, e2e/ runs the real daemon."""
