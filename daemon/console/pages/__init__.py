"""The console's pages, in one module for each subject."""
