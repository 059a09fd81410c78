"""Makes a folder of broken and odd inputs, with what should become of each.

Run `python -m tests.support.odd_files FOLDER` to look at them.
"""

import json
import os
import struct
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageCms

from tests.support.pictures import encode

WRITTEN, DUPLICATE = "written", "duplicate"
COLOR, GRAY = (90, 60, 3), (90, 60, 1)  # shapes


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input: a row of the table, its file's bytes (None for no file), and its fate."""

    kind: str
    fate: str  # WRITTEN, DUPLICATE or a reason code
    data: bytes | None = None
    name: str = "image.jpg"
    row: dict[str, Any] = field(default_factory=dict)
    line: bytes | None = None  # the table's line as it is, instead of the row
    fifo: bool = False
    shape: tuple[int, int, int] | None = None  # expected height, width, channels


def _pixels(seed: int, mode: str = "RGB", size: tuple[int, int] = (60, 90)) -> Image.Image:
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (size[1] // 10, size[0] // 10, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.NEAREST).convert(mode)


def _jpeg(seed: int, **options: Any) -> bytes:
    return encode(_pixels(seed), "JPEG", **options)


def _rotated(seed: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return _jpeg(seed, exif=exif)


def _png_header_only(width: int, height: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + crc

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IEND", b"")


def _sixteen_bit() -> bytes:
    ramp = np.linspace(0, 65535, 90 * 60).reshape(90, 60).astype(np.uint16)
    return encode(Image.fromarray(ramp), "PNG")


def _box(**sides: float) -> dict[str, Any]:
    return {"boxes": [{"xmin": 5, "ymin": 5, "xmax": 30, "ymax": 20, "text": "TOTAL", **sides}]}


def _written(kind: str, name: str, data: bytes, *, shape: tuple[int, int, int] = COLOR) -> Case:
    return Case(kind=kind, fate=WRITTEN, name=name, data=data, shape=shape)


def cases() -> list[Case]:
    """All kinds; ids are the kinds."""
    return [
        *_jpegs(),
        *_other_formats(),
        *_odd_but_accepted(),
        *_repeated_pictures(),
        *_no_images(),
        *_damaged_images(),
        *_rejected_rows(),
        *_heic(),
    ]


def _jpegs() -> list[Case]:
    """Returns JPEG files of all kinds."""
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return [
        Case(kind="plain JPEG", fate=WRITTEN, data=_jpeg(0), shape=COLOR),
        Case(kind="grayscale JPEG", fate=WRITTEN, shape=GRAY, data=encode(_pixels(1, "L"), "JPEG")),
        Case(kind="CMYK JPEG", fate=WRITTEN, shape=COLOR, data=encode(_pixels(2, "CMYK"), "JPEG")),
        Case(kind="progressive JPEG", fate=WRITTEN, data=_jpeg(3, progressive=True)),
        Case(kind="JPEG named .png", fate=WRITTEN, data=_jpeg(4), name="wrong.png"),
        Case(kind="JPEG on its side", fate=WRITTEN, data=_rotated(6), shape=(60, 90, 3)),
        Case(
            kind="JPEG with rubbish after its end", fate=WRITTEN, data=_jpeg(7) + b"\0rubbish" * 9
        ),
        Case(
            kind="JPEG with broken EXIF", fate=WRITTEN, data=_jpeg(8, exif=b"Exif\0\0II*\0\xff\xff")
        ),
        Case(kind="JPEG with ICC profile", fate=WRITTEN, data=_jpeg(9, icc_profile=srgb)),
        Case(kind="JPEG with broken ICC profile", fate=WRITTEN, data=_jpeg(10, icc_profile=b"no")),
        Case(
            kind="multi-picture JPEG",
            fate=WRITTEN,
            shape=COLOR,
            data=encode(_pixels(11), "MPO", save_all=True, append_images=[_pixels(12)]),
        ),
    ]


def _other_formats() -> list[Case]:
    """Returns images of all other formats but HEIC."""
    pages = encode(_pixels(16), "TIFF", save_all=True, append_images=[_pixels(17)])
    animated = encode(_pixels(19), "GIF", save_all=True, append_images=[_pixels(20)])
    transparent = encode(_pixels(5).convert("P"), "PNG", transparency=0)
    return [
        _written("palette PNG, transparent", "a.png", transparent),
        _written("PNG with alpha", "b.png", encode(_pixels(13, "RGBA"), "PNG")),
        _written("16-bit PNG", "c.png", _sixteen_bit(), shape=GRAY),
        _written("1-bit PNG", "d.png", encode(_pixels(14, "1"), "PNG"), shape=GRAY),
        _written("WebP", "e.webp", encode(_pixels(15), "WEBP")),
        _written("TIFF", "f.tif", encode(_pixels(45), "TIFF")),
        Case(kind="TIFF of two pages", fate="many_pages", name="pages.tif", data=pages),
        _written("BMP", "g.bmp", encode(_pixels(18), "BMP")),
        _written("animated GIF", "h.gif", animated),
    ]


def _odd_but_accepted() -> list[Case]:
    """Returns images and rows that look wrong, and are not."""
    return [
        Case(
            kind="larger than --max-side",
            fate=WRITTEN,
            shape=(100, 40, 3),
            data=encode(_pixels(21, size=(400, 1000)), "JPEG"),
        ),
        Case(
            kind="spaces and signs in the name",
            fate=WRITTEN,
            data=_jpeg(22),
            name="Kassenbon [1] ü*?#%.jpg",
        ),
        Case(kind="box that reaches beyond", fate=WRITTEN, data=_jpeg(23), row=_box(xmax=65)),
        Case(kind="number as text", fate=WRITTEN, data=_jpeg(24), row={"total": " 3.50 "}),
        Case(kind="id in other scripts: Ωμέγα 領収書", fate=WRITTEN, data=_jpeg(25)),
    ]


def _repeated_pictures() -> list[Case]:
    """Returns a picture three times."""
    twin = _jpeg(90)
    return [
        Case(kind="same picture, first", fate=WRITTEN, data=twin),
        Case(kind="same picture, second", fate=DUPLICATE, data=twin),
        Case(kind="same pixels with a comment", fate=DUPLICATE, data=_jpeg(90, comment=b"hello")),
    ]


def _no_images() -> list[Case]:
    """Returns names of nothing that can be read, and files of other kinds."""
    return [
        Case(kind="no such file", fate="file_missing"),
        Case(kind="a folder", fate="unreadable", name="folder/"),
        Case(kind="a pipe", fate="unreadable", fifo=True),
        Case(kind="empty file", fate="file_empty", data=b""),
        Case(kind="text", fate="not_an_image", data=b"Total: 3.50\n"),
        Case(kind="HTML error page", fate="not_an_image", data=b"<html>404 Not Found</html>"),
        Case(kind="zip archive", fate="not_an_image", data=b"PK\x05\x06" + bytes(18)),
        Case(kind="PPM", fate="unsupported_format", data=encode(_pixels(26), "PPM")),
        Case(kind="PDF", fate="not_an_image", data=b"%PDF-1.4\n%%EOF"),
    ]


def _damaged_images() -> list[Case]:
    """Returns images that can't be decoded, and those that are too small or too large."""
    jpeg, png, webp = _jpeg(27), encode(_pixels(29), "PNG"), encode(_pixels(30), "WEBP")
    return [
        Case(kind="JPEG cut in half", fate="truncated", data=jpeg[: len(jpeg) // 2]),
        Case(kind="JPEG cut in its header", fate="truncated", data=_jpeg(28)[:6]),
        Case(kind="PNG cut in half", fate="truncated", name="i.png", data=png[: len(png) // 2]),
        Case(
            kind="PNG with broken data",
            fate="corrupt",
            name="j.png",
            data=png[: len(png) // 2] + bytes(20) + png[len(png) // 2 + 20 :],
        ),
        Case(kind="WebP cut in half", fate="corrupt", name="k.webp", data=webp[: len(webp) // 2]),
        Case(kind="bomb", fate="too_many_pixels", data=_png_header_only(30_000, 30_000)),
        Case(
            kind="5 pixels wide",
            fate="too_small",
            data=encode(_pixels(31, size=(60, 90)).resize((5, 90)), "JPEG"),
        ),
        Case(
            kind="larger than --max-input-mb",
            fate="file_too_large",
            data=_jpeg(32) + bytes(1 << 20),
        ),
    ]


def _rejected_rows() -> list[Case]:
    """Returns sound images in rows that can't be used, and lines that are no rows."""
    return [
        Case(kind="no layout", fate="layout_missing", data=_jpeg(33), row={"layout": " "}),
        Case(kind="no label", fate="label_missing", data=_jpeg(34), row={"total": None}),
        Case(
            kind="label of another type", fate="label_type", data=_jpeg(35), row={"total": "three"}
        ),
        Case(kind="label not a number", fate="label_type", data=_jpeg(36), row={"total": "nan"}),
        Case(
            kind="boxes of another form", fate="boxes_invalid", data=_jpeg(37), row={"boxes": [3]}
        ),
        Case(kind="box not finite", fate="boxes_invalid", data=_jpeg(38), row=_box(xmin="inf")),
        Case(kind="box outside", fate="box_outside", data=_jpeg(39), row=_box(xmin=70, xmax=80)),
        Case(kind="box inside out", fate="box_outside", data=_jpeg(40), row=_box(xmin=30, xmax=5)),
        Case(kind="id taken", fate=WRITTEN, data=_jpeg(41)),
        Case(
            kind="id taken, again",
            fate="duplicate_id",
            data=_jpeg(42),
            name="z.jpg",
            row={"id": "id taken"},
        ),
        Case(kind="no id", fate="id_missing", data=_jpeg(43), row={"id": ""}),
        Case(kind="no image named", fate="image_missing", row={"image": ""}),
        Case(kind="image outside", fate="image_outside", row={"image": "../x"}),
        Case(kind="row is no JSON", fate="bad_row", line=b'{"id": "broken", '),
        Case(kind="row is a list", fate="bad_row", line=b"[1, 2]"),
        Case(kind="row is not UTF-8", fate="bad_row", line=b'{"id": "caf\xe9", "image": "x"}'),
    ]


def _heic() -> list[Case]:
    """Returns an image that is accepted only where pillow-heif is installed."""
    try:
        import pillow_heif
    except ImportError:
        return []
    pillow_heif.register_heif_opener()
    return [_written("HEIC", "l.heic", encode(_pixels(44), "HEIF"))]


def write_cases(folder: Path) -> Path:
    """Writes every case's file, and the table that names them; returns the table."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, case in enumerate(cases()):
        name = f"{number:02d}-{case.name}"
        if case.name.endswith("/"):
            (folder / name).mkdir()
        elif case.fifo:
            os.mkfifo(folder / name)
        elif case.data is not None:
            (folder / name).write_bytes(case.data)
        row = {"id": case.kind, "image": name, "layout": "odd", "total": 1.5, **case.row}
        lines.append(case.line or json.dumps(row, ensure_ascii=False).encode())
    table = folder / "odd.jsonl"
    table.write_bytes(b"\n".join(lines) + b"\n")
    return table


if __name__ == "__main__":
    print(write_cases(Path(sys.argv[1])))
