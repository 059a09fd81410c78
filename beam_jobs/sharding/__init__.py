"""The split, the shard and the position of each record."""
