"""Layouts that are found, where receipts have none given: descriptors, clusters, assignment."""
