"""Publication: how finished files become a version in the output directory, COMPLETED last."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from beam_jobs.errors import BuildError
from beam_jobs.options import Base
from beam_jobs.prepare.staging import Staging
from beam_jobs.storage import files
from schemas.file_names import COMPLETED, is_dataset_file


@dataclass(frozen=True, kw_only=True)
class Publication:
    """A version on its way into the output directory, as the file `publishing` notes it.

    Attributes:
      launch: identifies the launch of the build that publishes it.
      request: what was asked for, see `BuildOptions.request`.
      completed: text that COMPLETED will hold.
    """

    launch: str
    request: str
    completed: str

    def move_into_place(
        self,
        names: Sequence[str],
        sizes: Mapping[str, int],
        staging: Staging,
        base: Base | None = None,
        *,
        is_own: Callable[[str], bool] = is_dataset_file,
    ) -> None:
        """Replaces the dataset in the output directory, or adds a version to it.

        A kill may come at any point. What it leaves, and what the next run of the command does:

        1. All files must be staged, by this launch. Killed before: the old dataset is untouched.
        2. `publishing` notes which dataset is being moved. Killed after: the same.
        3. The old COMPLETED is deleted. Killed after: there is no dataset for readers; the next
           run finds its images prepared, stages all files again and starts at 1.
        4. Old files that the new ones do not replace are deleted. Killed after: as in 3.
        5. The new files are moved, the manifest first. Killed in between: as in 3.
        6. The names and sizes of all files are checked, and that `publishing` is still the note
           of 2. Killed after: as in 3.
        7. COMPLETED is moved. Killed after: the new dataset, with a staging directory that the
           next run deletes (`output.is_published`).

        A version that is added leaves COMPLETED and the files of the older versions alone: there is
        no 3, 4 deletes what a killed build has left of the same version, and 7 replaces COMPLETED.
        So a kill leaves the older versions whole at any point.

        A runner may try a publication again, or do it twice at once. Its note is there then, so
        files that are not staged any more were moved by the other attempt.

        `output_lock` keeps two builds apart on local file systems. Where there is no lock, as on
        object stores, a build moves only files of its own launch, and of two that publish at once
        the one that began first fails at 6 and makes the other fail there, too. What is left to
        chance is the moment between 6 and 7: should the other begin then, COMPLETED and
        the manifest may disagree, which `verify` names.

        Args:
          names: all files of the dataset but COMPLETED, the manifest first.
          sizes: name to bytes of those files whose size is known.
          staging: the staging directory, with the finished files of this launch.
          base: the dataset to which a version is added; None to replace it.
          is_own: whether a file of this path in the output is one of what is replaced.

        Raises:
          BuildError: another build publishes at the same time, or has added a version meanwhile.
          ValueError: a file is missing, or has another size.
        """
        staged, output = staging.finished(self.launch), staging.output
        # 1. All files must be staged.
        # `begun`: an attempt of this launch has noted the dataset and not cleaned up yet. If the
        # output has its COMPLETED and the note is there, or files are not staged any more, that
        # attempt has published them. If all files are staged and there is no note, an earlier build
        # has made an equal dataset, which is replaced like any other.
        ready = _own_sizes(staged, is_own)
        begun = begun_publication(staging) == self
        missing = [name for name in names if name not in ready]
        if read_completed(output) == self.completed and (begun or missing):
            return  # another attempt has published this
        if missing and not begun:
            raise ValueError(f"{missing[0]} is not in {staged}: run the build again")
        # 2. Notes the dataset.
        completed = files.join(output, COMPLETED)
        files.write(staging.publishing, json.dumps(asdict(self)).encode())
        # 3. and 4. From here on there is no dataset for readers, or the older versions.
        if base is None:
            # COMPLETED goes before any other file, so that no reader finds it beside files of two
            # datasets.
            _delete([completed])
        else:
            _check_base(output, base)
        kept = {*names, COMPLETED}
        files.delete(
            [
                files.join(output, name)
                for name in _own_sizes(output, is_own)
                if name not in kept and not (base and base.has(name))
            ]
        )
        # 5. Files that are not staged any more were moved by another attempt.
        pairs = [
            (files.join(staged, name), files.join(output, name)) for name in names if name in ready
        ]
        files.move(pairs[:1])  # the manifest: from now on no other COMPLETED fits
        files.move(pairs[1:])
        # 6. Checks that the output is whole, and of this launch.
        published = _own_sizes(output, is_own)
        if begun_publication(staging) != self and read_completed(output) == self.completed:
            return  # another attempt has published this, and cleaned up
        others = {name for name in published.keys() - kept if not (base and base.has(name))}
        if begun_publication(staging) != self or others:
            # Both builds may have replaced files of the other, so the other must fail as well.
            _delete([staging.publishing, *([] if base else [completed])])
            raise BuildError(
                f"another build publishes to {output} at the same time, so neither is finished: "
                "run the same command again when the other has ended"
            )
        # Sizes of shards are known from writing them. Any other file's is known only if it was
        # still staged; else its name alone must be there.
        expected = {**ready, **sizes}
        for name in names:
            if name not in published or published[name] != expected.get(name, published[name]):
                raise ValueError(f"{name} was not moved into place: run the build again")
        # 7. From here on there is the new dataset.
        if base is not None:
            _check_base(output, base)
        files.write(files.join(staged, COMPLETED), self.completed.encode())
        files.move([(files.join(staged, COMPLETED), completed)])


def _check_base(output: str, base: Base) -> None:
    """Raises BuildError if the dataset has changed since a build began to append to it."""
    if read_completed(output) != base.completed:
        raise BuildError(
            f"another build has changed {output} meanwhile, so nothing was appended: run the same "
            "command again, it reuses the finished work"
        )


def begun_publication(staging: Staging) -> Publication | None:
    """Returns the publication that began last and was not cleaned up, None if there is none."""
    if not files.exists(staging.publishing):
        return None
    try:
        return Publication(**json.loads(files.read(staging.publishing)))
    except (ValueError, TypeError):  # a power failure may leave an empty file
        return None


def read_completed(output: str) -> str | None:
    """Returns the text of COMPLETED, None if a directory holds no finished dataset."""
    path = files.join(output, COMPLETED)
    return files.read(path).decode(errors="replace") if files.exists(path) else None


def _delete(paths: Sequence[str]) -> None:
    files.delete([path for path in paths if files.exists(path)])


def _own_sizes(directory: str, is_own: Callable[[str], bool]) -> dict[str, int]:
    """Name to bytes of each file of a directory that is one of its own."""
    root = directory.rstrip("/") + "/"
    listed = files.list_files(files.join(directory, "**"))
    sizes = {file.path.removeprefix(root): file.size_in_bytes for file in listed}
    return {name: sizes[name] for name in sorted(sizes) if is_own(name)}
