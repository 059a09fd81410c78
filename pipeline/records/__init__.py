"""Dataset directories: their description, and the records in them."""
