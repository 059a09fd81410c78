"""Files on this machine, on HDFS and on object stores, alike."""
