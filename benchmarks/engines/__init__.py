"""Builds on clusters of Flink and Spark that run on this machine, with processes being killed."""
