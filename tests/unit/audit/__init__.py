"""The audit: chains of records, what is read from them, and what they prove."""
