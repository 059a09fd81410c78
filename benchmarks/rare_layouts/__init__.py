"""Whether rare layouts are learned better: orders and balances of batches, side by side."""
