"""Checks of tillroll together with libraries that its own environments lack."""
