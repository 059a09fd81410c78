"""A Beam job of no work, on the runner of the build: what Beam itself takes of a small build."""

import sys

import apache_beam as beam

from beam_jobs.running.runner import beam_options, choose_runner

if __name__ == "__main__":
    options = beam_options([])
    with beam.Pipeline(choose_runner("local", options, int(sys.argv[1])), options) as pipeline:
        _ = pipeline | beam.Create([1, 2]) | beam.Reshuffle() | beam.Map(abs)
