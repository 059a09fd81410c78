"""Pictures of what a run has done."""
