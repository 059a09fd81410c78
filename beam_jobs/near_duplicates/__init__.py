"""Receipts that were photographed, scanned or sent twice, and what becomes of them."""
