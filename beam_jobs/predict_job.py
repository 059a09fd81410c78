"""The prediction as a Beam pipeline: rows in, a directory of predictions out.

The first half is the build's own (`beam_jobs.prepare_inputs`): rows come in chunks, and a chunk
goes to a staging file. What is staged of a row are its predictions.
"""

from collections.abc import Iterable, Iterator
from functools import partial

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton

from beam_jobs.prediction.options import PredictOptions
from beam_jobs.prediction.prediction_file import PredictionWriter, WrittenFile
from beam_jobs.prediction.predictor import ChunkPredictor
from beam_jobs.prediction.publish import PredictionPublisher, check_predictions_output
from beam_jobs.prediction.records import RecordSource
from beam_jobs.prepare.chunks import bucket_count
from beam_jobs.prepare_inputs import count_reasons, prepare, read_buckets
from beam_jobs.shard_plan import check_rejections
from beam_jobs.writing.listings import WriteQuarantine
from schemas.file_names import QUARANTINE

Located = tuple[int, str]  # bucket, path of its References

_SEED = 0  # of the ids' hashes, which decide on the order of the predictions


def add_predict(pipeline: beam.Pipeline, options: PredictOptions) -> None:
    """Adds the whole prediction to a pipeline."""
    source = options.source
    features = source.features() if isinstance(source, RecordSource) else ()
    predictor = ChunkPredictor(
        staging=options.staging,
        model=options.model,
        image=options.image,
        batch_size=options.batch_size,
        seed=_SEED,
        features=features,
    )
    buckets, inputs = read_buckets(
        pipeline, options, seed=_SEED, check_output=partial(check_predictions_output, options)
    )
    predicted = buckets | "Predict" >> prepare(predictor, inputs, options)
    checked = AsSingleton(
        pipeline
        | "OncePredicted" >> beam.Impulse()
        | "CheckRejections"
        >> beam.Map(
            _check_rejections,
            inputs=inputs,
            reasons=count_reasons(predicted["rejected"]),
            max_bad_fraction=options.max_bad_fraction,
        )
    )  # inputs, once it is known that enough of them have predictions
    located = predicted["references"] | "IntoFiles" >> beam.Map(
        _into_file, inputs=checked, options=options
    )  # (file, [Located])
    every = (
        pipeline
        | "OnceChecked" >> beam.Impulse()
        | "EveryFile" >> beam.FlatMap(_every_file, inputs=checked, options=options)
    )  # (file, [])
    writer = PredictionWriter(
        staging=options.staging,
        directory=options.finished_directory,
        format=options.format,
        outputs=options.model.outputs,
        has_splits=bool(features),
    )
    written = (
        (located, every)
        | beam.Flatten()
        | "ByFile" >> beam.GroupByKey()  # (file, [[Located]])
        | "WriteFile" >> beam.Map(_write_file, inputs=checked, writer=writer, options=options)
    )  # WrittenFile
    quarantine = predicted["rejected"] | "Quarantine" >> WriteQuarantine(
        options.finished_directory, QUARANTINE
    )
    _ = (
        pipeline
        | "OnceWritten" >> beam.Impulse()
        | "Publish"
        >> beam.Map(
            PredictionPublisher(options=options).publish,
            inputs=checked,
            chunks=AsList(predicted["summaries"]),
            written=AsList(written),
            listings=AsList(quarantine),
        )
    )


def _check_rejections(
    _: bytes, *, inputs: int, reasons: dict[str, tuple[int, str]], max_bad_fraction: float
) -> int:
    check_rejections(inputs, reasons, max_bad_fraction)
    return inputs


def _into_file(
    located: Located, *, inputs: int, options: PredictOptions
) -> tuple[int, list[Located]]:
    """Gives a bucket to its file: of 4 files for 8 buckets, each has two neighbors."""
    bucket, _ = located
    return bucket * options.file_count(inputs) // bucket_count(inputs), [located]


def _every_file(
    _: bytes, *, inputs: int, options: PredictOptions
) -> Iterator[tuple[int, list[Located]]]:
    """Yields nothing for each file, so that one without predictions is written too."""
    for number in range(options.file_count(inputs)):
        yield number, []


def _write_file(
    keyed: tuple[int, Iterable[list[Located]]],
    *,
    inputs: int,
    writer: PredictionWriter,
    options: PredictOptions,
) -> WrittenFile:
    number, parts = keyed
    return writer.write(
        number, options.file_count(inputs), [located for part in parts for located in part]
    )
