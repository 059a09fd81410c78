"""Predictions of a trained model, prepared chunk by chunk as images are."""
