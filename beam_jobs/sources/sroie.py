"""Folders in the form of the SROIE data set: `img/X.jpg` with `box/X.csv` and `key/X.json`.

A box file has one line per text line, with the corners of a quadrilateral: x1,y1,x2,y2,x3,y3,x4,y4,
transcript. A key file is a JSON object with the labels, such as company, date, address and total.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from apache_beam.io.filesystem import FileMetadata

from beam_jobs.rejection import Reason
from beam_jobs.shown import VALUE_CHARACTERS, shortened, shown
from beam_jobs.sources import strict_json
from beam_jobs.sources.folders import below
from beam_jobs.sources.names import other_forms
from beam_jobs.sources.row import Row, make_row, number, rejected_row
from beam_jobs.storage import files
from schemas.receipt import Label

IMAGE_FOLDER = "img"


def sroie_row(
    image: FileMetadata, *, folder: str, labels: Sequence[Label], layout: str | None = None
) -> Row:
    """Returns the row of one image of a SROIE folder.

    Its company, upper-cased, is its layout, unless `layout` is that of all images.
    """
    name = below(image.path, files.join(folder, IMAGE_FOLDER))
    id_ = name.rpartition(".")[0] or name
    boxes_path = files.join(folder, "box", f"{id_}.csv")
    key_path = files.join(folder, "key", f"{id_}.json")
    try:
        key = strict_json.loads(_decoded(_read(key_path)))
        if not isinstance(key, dict):
            raise ValueError("not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        message = _sentence(key_path, error)
        return rejected_row(key_path, Reason.BAD_ROW, message, id_=id_, uri=image.path)
    try:
        # Not `splitlines`, which also splits at characters that OCR engines write into a line, such
        # as form feeds.
        lines = re.split(r"\r\n?|\n", _decoded(_read(boxes_path)))
        boxes = [_quadrilateral(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        message = _sentence(boxes_path, error)
        return rejected_row(boxes_path, Reason.BOXES_INVALID, message, id_=id_, uri=image.path)
    return make_row(
        id_=id_,
        uri=image.path,
        layout=_upper(key.get("company")) if layout is None else layout,
        boxes=boxes,
        raw_labels=key,
        labels=labels,
        source=json.dumps(key, ensure_ascii=False, sort_keys=True),
        needs_layout=layout is None,
    )


def _quadrilateral(line: str) -> dict[str, float | str]:
    """Returns the bounds of the quadrilateral of a line; its transcript may hold commas."""
    # At most eight times: what follows the eighth comma is transcript.
    cells = line.split(",", 8)
    if len(cells) < 9:
        raise ValueError(f"{shown(line)} is not eight numbers and a transcript")
    xs, ys = [number(cell) for cell in cells[0:8:2]], [number(cell) for cell in cells[1:8:2]]
    return {
        "xmin": min(xs),
        "ymin": min(ys),
        "xmax": max(xs),
        "ymax": max(ys),
        "text": cells[8].strip(),
    }


def _upper(company: Any) -> Any:
    return company.upper() if isinstance(company, str) else company


def _read(path: str) -> bytes:
    """Reads an annotation, whose name may have another form of Unicode than that of its image."""
    try:
        return files.read(path)
    except FileNotFoundError as error:
        for form in other_forms(path):
            if files.exists(form):
                return files.read(form)
        raise FileNotFoundError(
            f"{error}: a SROIE folder holds img/X.jpg, box/X.csv and key/X.json"
        ) from error


def _sentence(path: str, error: Exception) -> str:
    text = str(error)
    return text if text.startswith(path) else f"{path}: {shortened(text, 2 * VALUE_CHARACTERS)}"


def _decoded(data: bytes) -> str:
    """Decodes annotations: most of SROIE's are UTF-8, a few are of Windows, in Windows-1252."""
    for encoding in ("utf-8-sig", "cp1252"):
        with suppress(UnicodeDecodeError):
            return data.decode(encoding)
    return data.decode("latin-1")  # five bytes stand for nothing in Windows-1252
