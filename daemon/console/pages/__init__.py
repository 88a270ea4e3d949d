"""The pages, one file each: what a page shows, as parts that are replaced when they change."""
