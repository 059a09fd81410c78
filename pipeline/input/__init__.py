"""The input pipeline: from record numbers to batches, with tf.data."""
