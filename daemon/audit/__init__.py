"""The audit: records every decision, in chained records in separate files."""
