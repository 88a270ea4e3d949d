"""Documents and bundles that others publish."""
