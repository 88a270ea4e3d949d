"""Scripts of models, in the real interpreter."""
