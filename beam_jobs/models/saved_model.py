"""An exported model as a directory of files: its digest, its signature, its kind of images."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from beam_jobs.errors import BuildError
from beam_jobs.images.image import ImageOptions
from beam_jobs.models.signature import read_signature
from beam_jobs.storage import files
from schemas.manifest import image_form
from schemas.predictions import ModelOutput

_GRAPH = "saved_model.pb"
_PIECE_BYTES = 1 << 26
_DESCRIPTION = "assets.extra/tillroll.json"  # of `pipeline.serving.saved_model.export`


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A model, and the signature by which it is called.

    Attributes:
      path: its directory, on any file system that Beam knows.
      signature: name of the signature.
      input: name of the signature's only input.
      outputs: values that it gives for each image.
      sha256: digest of the names and contents of all its files.
    """

    path: str
    signature: str
    input: str
    outputs: tuple[ModelOutput, ...]
    sha256: str

    @classmethod
    def read(cls, path: str, signature: str) -> Self:
        """Reads what there is to know of a model, without TensorFlow.

        Raises:
          ValueError: there is no model, or it can't be called with image files.
        """
        graph = files.join(path, _GRAPH)
        if not files.exists(graph):
            raise ValueError(
                f"{path} holds no exported model (no file {_GRAPH}): check the path, or write it "
                "with python -m pipeline.export"
            )
        input_name, outputs = read_signature(files.read(graph), signature, path=path)
        return cls(
            path=path,
            signature=signature,
            input=input_name,
            outputs=outputs,
            sha256=_digest(path),
        )

    @contextmanager
    def on_this_machine(self) -> Iterator[str]:
        """Gives a local directory with the model, which is there while the context lasts.

        Raises:
          BuildError: the model is no longer the one that the job began with.
        """
        if files.is_local(self.path):
            self._check(self.path)
            yield self.path
            return
        # With Beam's clients: TensorFlow knows fewer stores.
        with TemporaryDirectory(prefix="tillroll-model-") as folder:
            for path in files.list_below(self.path):
                copy = Path(folder, path.removeprefix(f"{self.path.rstrip('/')}/"))
                copy.parent.mkdir(parents=True, exist_ok=True)
                with copy.open("wb") as file:
                    file.writelines(_pieces(path))
            self._check(folder)
            yield folder

    def _check(self, directory: str) -> None:
        if _digest(directory) != self.sha256:
            raise BuildError(
                f"the model {self.path} has changed since the job began: run the same command "
                "again, which then predicts with the new model"
            )


def image_options(path: str) -> dict[str, Any]:
    """Reads how the images of a model's dataset were prepared; nothing where the model is silent.

    Raises:
      ValueError: the description is damaged.
    """
    description = files.join(path, _DESCRIPTION)
    if not files.exists(description):
        return {}
    try:
        stored = json.loads(files.read(description)).get("stored_images", {})
        given = image_form(stored) if stored else {}
        ImageOptions(**given)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{description} is damaged: {error}; export the model anew") from error
    return given


def _digest(directory: str) -> str:
    """Digest of the names and contents of all files of a directory, hex SHA-256."""
    root = directory.rstrip("/") + "/"
    digest = hashlib.sha256()
    for path in sorted(files.list_below(directory)):
        content = hashlib.sha256()
        for piece in _pieces(path):
            content.update(piece)
        digest.update(f"{path.removeprefix(root)}\0{content.hexdigest()}\n".encode())
    return digest.hexdigest()


def _pieces(path: str) -> Iterator[bytes]:
    """Yields a file piece by piece: variables may have gigabytes."""
    offset = 0
    while piece := files.read_range(path, offset, _PIECE_BYTES):
        yield piece
        offset += len(piece)
