"""Hyperparameter search: an Optuna study whose trials are training runs."""
