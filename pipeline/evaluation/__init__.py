"""Averages over a split, and layout by layout."""
