"""The audit: writes every decision as a record of a chain, into files of its own."""
