"""Forgetting: records and rejected inputs go from every file of a dataset directory."""
