"""Tasks: a model with its loss and metrics, as the trainer needs them."""
