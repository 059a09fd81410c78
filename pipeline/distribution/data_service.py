"""The server of a tf.data service: a dispatcher with its one worker."""

import tensorflow as tf


class DataService:
    """A service that runs input pipelines for trainers, until the process ends.

    Attributes:
      address: where trainers reach it, HOST:PORT.
    """

    def __init__(self, host: str, port: int, worker_port: int) -> None:
        """Starts a dispatcher and its worker.

        Args:
          host: name or address of this machine as trainers know it.
          port: port of the dispatcher; 0 for any that is free.
          worker_port: port of the worker, which trainers reach, too; 0 for any that is free.

        Raises:
          ValueError: a port is taken.
        """
        service = tf.data.experimental.service
        try:
            self._dispatcher = service.DispatchServer(service.DispatcherConfig(port=port))
            own_port = self._dispatcher.target.rpartition(":")[2]
            self._worker = service.WorkerServer(
                service.WorkerConfig(
                    dispatcher_address=f"localhost:{own_port}",
                    # TensorFlow puts the port in the place of %port%, which matters where it is 0.
                    worker_address=f"{host}:%port%",
                    port=worker_port,
                )
            )
        except tf.errors.OpError as error:
            raise ValueError(
                f"the data service can't listen at the ports {port} and {worker_port} "
                f"({error.message}): choose others"
            ) from error
        self.address = f"{host}:{own_port}"
