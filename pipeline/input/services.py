"""Input pipelines that run on other machines, by tf.data service.

Service number w of W makes every W-th global batch, from the w-th on, and the trainer takes their
batches by turns, so the order is exact: with two services, 0 of the first, 1 of the second, 2 of
the first.

TensorFlow's own division of one job among several workers has no such order: it takes workers in
the order in which they answer. So each service here is a dispatcher with one worker, and each input
pipeline of the training has a job of its own at each of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.distribution.parameter_server import is_parameter_server
from pipeline.distribution.peers import host_and_port, wait_for_peers
from pipeline.input.unbroken import unbroken

_CONNECT_S = 60.0  # in which a service that is just being started should listen


def check_services(strategy: tf.distribute.Strategy, services: Sequence[str]) -> None:
    """Checks addresses, and waits until somebody listens at each of them.

    Args:
      strategy: the strategy that trains.
      services: one address or more, such as "10.0.0.7:5050".

    Raises:
      TimeoutError: nobody listens at an address within a minute.
      ValueError: an address is none or comes twice, or the strategy takes no services.
    """
    if is_parameter_server(strategy):
        raise ValueError(
            f"services {list(services)} can't be used under ParameterServerStrategy, whose workers "
            "make their batches themselves: leave the services out, or start more workers"
        )
    for address in services:
        try:
            host_and_port(address)
        except ValueError as error:
            raise ValueError(
                f"services: {error}: give the address that python -m pipeline.data_service prints"
            ) from error
    if len({*services}) < len(services):
        raise ValueError(
            f"services {list(services)}: each address can come once only, as a service makes every "
            "W-th batch of W services"
        )
    wait_for_peers(dict.fromkeys(services, "the data service"), limit_s=_CONNECT_S)


def portable(config: InputConfig) -> InputConfig:
    """Changes options so that datasets are made of operations that another process can run."""
    return replace(config, reading=replace(config.reading, portable=True))


def is_lost_service(error: tf.errors.OpError) -> bool:
    """Tells whether an error says that a service was started anew, and knows no running job."""
    return "Unknown iteration client id" in error.message


def through_services(
    services: Sequence[str], make: Callable[[int], tf.data.Dataset], *, batches: int
) -> tf.data.Dataset:
    """Makes an infinite dataset whose batches come from services by turns.

    Args:
      services: their addresses.
      make: makes the dataset of the batches of service number w, every W-th global batch.
      batches: batches of a global batch that this input pipeline feeds, one for each replica.
    """
    count = len(services)

    def of_service(number: int, address: str) -> tf.data.Dataset:
        def numbered(place: tf.Tensor, batch: Any) -> tuple[tf.Tensor, Any]:
            # Its place among the batches of all. With two services and 3 batches of a global batch
            # each, the fourth batch of service 1 is the first one of step 3, number 9.
            step = place // batches * count + number
            return step * batches + place % batches, batch

        return (
            make(number)
            .enumerate()
            .map(numbered)
            .apply(
                tf.data.experimental.service.distribute(
                    # A job of its own: nobody else takes elements of it.
                    processing_mode=tf.data.experimental.service.ShardingPolicy.OFF,
                    service=f"grpc://{address}",
                    # Pixels of photos hardly shrink, and what it takes to try, decoding lacks.
                    compression=None,
                )
            )
        )

    remote = [of_service(number, address) for number, address in enumerate(services)]
    turns = tf.data.Dataset.range(count).flat_map(
        lambda number: tf.data.Dataset.from_tensors(number).repeat(batches)
    )
    taken = unbroken(tf.data.Dataset.choose_from_datasets(remote, turns.repeat()))
    infinite = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return taken.apply(infinite).prefetch(tf.data.AUTOTUNE).with_options(options)
