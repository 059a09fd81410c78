"""Runners, worker processes, signals, progress and the summary."""
