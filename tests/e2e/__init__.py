"""The real daemon as a child, real servers, and clients that nobody here wrote."""
