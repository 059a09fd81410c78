"""Publishing of predictions: the staged files become the output directory, COMPLETED last."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from beam_jobs.errors import TRY_AGAIN, BuildError
from beam_jobs.prediction.options import PredictOptions
from beam_jobs.prediction.prediction_file import WrittenFile
from beam_jobs.prediction.records import RecordSource
from beam_jobs.prepare.staging import delete_staging
from beam_jobs.storage import files
from beam_jobs.writing.chunk_summary import ChunkSummary
from beam_jobs.writing.listings import ListedFile
from beam_jobs.writing.output import check_names
from beam_jobs.writing.publication import Publication, read_completed
from schemas import __version__
from schemas.predictions import (
    MANIFEST,
    PredictionsManifest,
    completed_text,
    is_predictions_file,
)


@dataclass(frozen=True, kw_only=True)
class PredictionPublisher:
    """Publishes the finished files of a launch as a directory of predictions."""

    options: PredictOptions

    def publish(
        self,
        _: bytes,
        inputs: int,
        chunks: Sequence[ChunkSummary],
        written: Sequence[WrittenFile],
        listings: Sequence[ListedFile],
    ) -> None:
        """Checks the counts, writes the manifest and moves everything into place.

        Args:
          inputs: number of rows of the source.
          chunks: a summary of each chunk.
          written: all files of predictions.
          listings: the quarantine's files, with their checksums.

        Raises:
          BuildError: inputs or files were lost or repeated.
        """
        options = self.options
        numbers = Counter(one.name for one in written)
        count = options.file_count(inputs)
        if len(numbers) != count or set(numbers.values()) != {1}:
            raise BuildError(f"{len(written)} of {count} files were written: {TRY_AGAIN}")
        quarantined: Counter[str] = Counter()
        fingerprint = hashlib.sha256()
        for chunk in sorted(chunks, key=lambda chunk: chunk.number):
            quarantined.update(chunk.quarantined)
            fingerprint.update(bytes.fromhex(chunk.fingerprint))
        predicted = sum(one.rows for one in written)
        # The numbers come from different branches of the job: a runner that loses or repeats an
        # element in one of them is found here.
        prepared = sum(chunk.inputs for chunk in chunks)
        if not prepared == inputs == predicted + quarantined.total():
            raise BuildError(
                f"of {inputs:,} inputs, {prepared:,} were read, {predicted:,} have predictions and "
                f"{quarantined.total():,} are rejected: {TRY_AGAIN}"
            )
        source = options.source
        manifest = PredictionsManifest(
            inputs=inputs,
            predicted=predicted,
            quarantined=dict(quarantined),
            excluded=source.excluded() if isinstance(source, RecordSource) else 0,
            outputs=options.model.outputs,
            model_sha256=options.model.sha256,
            options=options.recorded(),
            source_fingerprint=fingerprint.hexdigest(),
            written_by=f"tillroll {__version__}",
            files={**{one.name: one.checksum for one in written}, **dict(listings)},
        )
        self._move_into_place(manifest)

    def _move_into_place(self, manifest: PredictionsManifest) -> None:
        options = self.options
        text = manifest.to_json()
        files.write(files.join(options.finished_directory, MANIFEST), text.encode())
        sizes = {name: one.size_bytes for name, one in manifest.files.items()}
        Publication(
            launch=options.launch, request=options.request, completed=completed_text(text)
        ).move_into_place(
            [MANIFEST, *manifest.files], sizes, options.staging, is_own=is_predictions_file
        )
        delete_staging(options.staging)


def check_predictions_output(options: PredictOptions) -> None:
    """Checks that predictions may be written to the output directory.

    Raises:
      BuildError: it holds a file that no such job wrote, or predictions that must not be replaced.
    """
    check_names(options.staging, is_predictions_file)
    if read_completed(options.output) is not None and not options.overwrite:
        raise BuildError(
            f"{options.output} holds finished predictions: replace them with --overwrite, or "
            "choose another --output"
        )


def read_predictions_manifest(output: str) -> PredictionsManifest:
    """Reads the manifest of a directory of predictions.

    Raises:
      ValueError: it is damaged.
    """
    return PredictionsManifest.from_json(files.read(files.join(output, MANIFEST)))
