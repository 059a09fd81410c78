"""Apache Flink and Apache Spark as clusters of processes on this machine, and builds on them."""
