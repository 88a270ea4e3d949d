"""The audit: every decision as a chained record in files of its own."""
