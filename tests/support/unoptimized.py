"""A plugin of pytest: TensorFlow runs its graphs as they were made.

Tests make thousands of small graphs that run once or twice. Grappler would look through them for
longer than they run.
"""

import tensorflow as tf

tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
