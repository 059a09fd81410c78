"""`pipeline.train` on several logical devices: `DEVICES ARGUMENT...`."""

import sys

from pipeline.distribution.stop_request import hold_sigterm

if __name__ == "__main__":
    hold_sigterm()  # as the command does, before threads are started

import tensorflow as tf

from pipeline.train import main

if __name__ == "__main__":
    device = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * int(sys.argv[1])
    tf.config.set_logical_device_configuration(device, logical)
    sys.exit(main(sys.argv[2:]))
