"""Facts about ParameterServerStrategy.

It is the only strategy whose workers do not wait for each other: each takes its own steps, on
batches of its own. This module is the only one that uses private attributes of `tf.distribute`.
"""

import tensorflow as tf


def is_parameter_server(strategy: tf.distribute.Strategy) -> bool:
    """Tells whether the workers of a strategy take their steps independently."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def worker_count(strategy: tf.distribute.ParameterServerStrategy) -> int:
    """Returns the number of workers."""
    # `strategy.cluster_resolver`, which is public, is None for this strategy.
    return int(strategy._cluster_resolver.cluster_spec().num_tasks("worker"))


def allow_updates_by_chief(strategy: tf.distribute.ParameterServerStrategy) -> None:
    """Lets the chief call `strategy.run` in graphs of its own without a warning.

    TensorFlow takes that for an oversight, as models are trained on workers.
    """
    # The same that Keras needed for evaluations on the chief.
    strategy.extended._allow_run_without_coordinator = True
