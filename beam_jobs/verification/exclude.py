"""Writing `excluded.json`: the damaged records of a dataset that are left out."""

from beam_jobs.errors import BuildError
from beam_jobs.storage import files
from beam_jobs.verification.shard import Fault
from schemas.excluded import Excluded, ExcludedRecord
from schemas.file_names import excluded_name
from schemas.manifest import Manifest


def excluded_record(fault: Fault) -> ExcludedRecord:
    """Returns the record of an excludable fault, as `excluded.json` names it.

    Raises:
      ValueError: the fault is not that of one record.
    """
    if fault.record is None or fault.offset is None or fault.id is None:
        raise ValueError(f"only a record can be excluded, not: {fault}")
    return ExcludedRecord(
        position=fault.record, id=fault.id, offset=fault.offset, fault=fault.message
    )


def write_excluded(directory: str, manifest: Manifest, excluded: Excluded) -> None:
    """Writes the whole file, atomically.

    Raises:
      BuildError: the file system refused.
    """
    path = files.join(directory, excluded_name(manifest.version))
    try:
        files.write(path, excluded.to_json().encode())
    except Exception as error:  # each file system raises its own kind of error
        raise BuildError(
            f"{path} could not be written, so nothing more is excluded: {error!r}; run the same "
            "command again where the directory can be written to"
        ) from error
