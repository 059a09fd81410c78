"""Measurements of tillroll, and what they measure it with."""
