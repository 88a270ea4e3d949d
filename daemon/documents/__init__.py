"""Files that people and programs keep by hand, changed as a person would change them."""
