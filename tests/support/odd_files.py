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
from tests.support.rare_images import XMP, lossless_jpeg, tiff

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
    drawn: Image.Image | None = None  # what the stored image shows, upright, of any size


def _pixels(seed: int, mode: str = "RGB", size: tuple[int, int] = (60, 90)) -> Image.Image:
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (size[1] // 10, size[0] // 10, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.NEAREST).convert(mode)


def _in_palette(seed: int) -> Image.Image:
    return _pixels(seed).convert("P", dither=Image.Dither.NONE)


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


def _sixteen_bit(*, clear: bool = False) -> tuple[bytes, Image.Image]:
    """Returns a PNG file of gray ramps, and what it shows; one of its levels may be transparent."""
    ramp = np.linspace(0, 65535, 90).astype(np.uint16)[:, None].repeat(60, 1)
    shown = (ramp >> 8).astype(np.uint8)
    if not clear:
        return encode(Image.fromarray(ramp), "PNG"), Image.fromarray(shown)
    ramp[10:50], shown[10:50] = 12_345, 255
    return encode(Image.fromarray(ramp), "PNG", transparency=12_345), Image.fromarray(shown)


def _bitfields_bmp() -> bytes:
    """Returns a BMP file of 4 bits a color."""
    header = struct.pack("<IiiHHIIiiII", 56, 60, 90, 1, 16, 3, 60 * 90 * 2, 0, 0, 0, 0)
    masks = struct.pack("<IIII", 0xF00, 0xF0, 0xF, 0)
    offset = 14 + len(header) + len(masks)
    pixels = bytes(60 * 90 * 2)
    return struct.pack("<2sIII", b"BM", offset + len(pixels), 0, offset) + header + masks + pixels


def _jpeg_of_12_bits() -> bytes:
    data = _jpeg(51)
    frame = data.index(b"\xff\xc0")
    return data[:frame] + b"\xff\xc1" + data[frame + 2 : frame + 4] + b"\x0c" + data[frame + 5 :]


def _box(**sides: float) -> dict[str, Any]:
    return {"boxes": [{"xmin": 5, "ymin": 5, "xmax": 30, "ymax": 20, "text": "TOTAL", **sides}]}


def _written(
    kind: str,
    name: str,
    data: bytes,
    drawn: Image.Image,
    *,
    shape: tuple[int, int, int] = COLOR,
) -> Case:
    return Case(kind=kind, fate=WRITTEN, name=name, data=data, shape=shape, drawn=drawn)


def cases() -> list[Case]:
    """All kinds; ids are the kinds."""
    return [
        *_jpegs(),
        *_other_formats(),
        *_tiffs(),
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
    gray, cmyk = _pixels(1, "L"), _pixels(2, "CMYK")
    phone = encode(_pixels(11), "MPO", save_all=True, append_images=[_pixels(12)])
    turned = _pixels(6).transpose(Image.Transpose.ROTATE_270)
    roll = _pixels(54, "L", (200, 300))
    return [
        _written("plain JPEG", "a.jpg", _jpeg(0), _pixels(0)),
        _written("grayscale JPEG", "b.jpg", encode(gray, "JPEG"), gray, shape=GRAY),
        _written("CMYK JPEG", "c.jpg", encode(cmyk, "JPEG"), cmyk.convert("RGB")),
        _written("progressive JPEG", "d.jpg", _jpeg(3, progressive=True), _pixels(3)),
        _written("JPEG named .png", "wrong.png", _jpeg(4), _pixels(4)),
        _written("JPEG on its side", "e.jpg", _rotated(6), turned, shape=(60, 90, 3)),
        _written("JPEG turned by XMP alone", "f.jpg", _jpeg(53, xmp=XMP), _pixels(53)),
        _written("JPEG with rubbish after its end", "g.jpg", _jpeg(7) + b"\0more" * 9, _pixels(7)),
        _written(
            "JPEG with broken EXIF", "h.jpg", _jpeg(8, exif=b"Exif\0\0II*\0\xff\xff"), _pixels(8)
        ),
        _written("JPEG with ICC profile", "i.jpg", _jpeg(9, icc_profile=srgb), _pixels(9)),
        _written(
            "JPEG with broken ICC profile", "j.jpg", _jpeg(10, icc_profile=b"no"), _pixels(10)
        ),
        _written("multi-picture JPEG", "k.jpg", phone, _pixels(11)),
        _written(
            "lossless JPEG larger than twice --max-side",
            "l.jpg",
            lossless_jpeg(np.asarray(roll)),
            roll,
            shape=(100, 67, 1),
        ),
    ]


def _other_formats() -> list[Case]:
    """Returns images of all other formats but HEIC."""
    pages = encode(_pixels(16), "TIFF", save_all=True, append_images=[_pixels(17)])
    palette, bilevel = _in_palette(5), _pixels(14, "1")
    clear = palette.convert("RGB")
    clear.paste("white", None, palette.point([255, *[0] * 255], "1"))
    animated = encode(_in_palette(19), "GIF", save_all=True, append_images=[_pixels(20)])
    return [
        _written("clear palette PNG", "a.png", encode(palette, "PNG", transparency=0), clear),
        _written("PNG with alpha", "b.png", encode(_pixels(13, "RGBA"), "PNG"), _pixels(13)),
        _written("16-bit PNG", "c.png", *_sixteen_bit(), shape=GRAY),
        _written("16-bit PNG, transparent", "c.png", *_sixteen_bit(clear=True), shape=GRAY),
        _written("1-bit PNG", "d.png", encode(bilevel, "PNG"), bilevel, shape=GRAY),
        _written("WebP", "e.webp", encode(_pixels(15), "WEBP"), _pixels(15)),
        _written("TIFF", "f.tif", encode(_pixels(45), "TIFF"), _pixels(45)),
        Case(kind="TIFF of two pages", fate="many_pages", name="pages.tif", data=pages),
        _written("BMP", "g.bmp", encode(_pixels(18), "BMP"), _pixels(18)),
        _written("animated GIF", "h.gif", animated, _in_palette(19).convert("RGB")),
    ]


def _tiffs() -> list[Case]:
    """Returns TIFF files that scanners and converters write, but not Pillow."""
    size = (60, 90)
    wide = {seed: np.asarray(_pixels(seed, "L")).astype(np.uint16) * 257 for seed in range(60, 67)}
    first, second = (wide[62] >> 4).ravel()[0::2], (wide[62] >> 4).ravel()[1::2]
    packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], 1)
    shares = 1 - wide[63].astype(np.float32) / 65535
    colors = np.asarray(_pixels(67)).astype(np.uint16) * 257
    planes = [colors[..., plane].tobytes() for plane in range(3)]
    files = {
        60: ("16 bits", tiff([wide[60].tobytes()], size, 16, 1)),
        61: ("16 bits, white is zero", tiff([(65535 - wide[61]).tobytes()], size, 16, 0)),
        62: ("12 bits", tiff([packed.astype(np.uint8).tobytes()], size, 12, 1)),
        63: ("floats, white is zero", tiff([shares.tobytes()], size, 32, 0, t339=[3])),
        64: ("a wide palette", _palette_tiff(wide[64], 257)),
        65: ("a palette of 8 bits", _palette_tiff(wide[65], 1)),
    }
    refused = {
        "16 bits in planes": tiff(planes, size, 16, 2, samples=3, planar=2),
        "YCbCr uncompressed": tiff([np.asarray(_pixels(68)).tobytes()], size, 8, 6, samples=3),
        "alpha of 16 bits": tiff(
            [np.stack([wide[66], wide[66]], -1).tobytes()], size, 16, 1, samples=2, t338=[2]
        ),
    }
    turned = encode(_pixels(69), "TIFF", tiffinfo={700: XMP})
    return [
        _written("TIFF turned by XMP alone", "xmp.tif", turned, _pixels(69)),
        *(
            _written(
                f"TIFF of {kind}",
                "a.tif",
                data,
                _pixels(seed, "L"),
                shape=COLOR if "palette" in kind else GRAY,
            )
            for seed, (kind, data) in files.items()
        ),
        *(
            Case(kind=f"TIFF of {kind}", fate="unsupported_format", name="b.tif", data=data)
            for kind, data in refused.items()
        ),
    ]


def _palette_tiff(wide: np.ndarray, times: int) -> bytes:
    colors = [level * times for level in range(256)] * 3
    return tiff([(wide >> 8).astype(np.uint8).tobytes()], (60, 90), 8, 3, t320=colors)


def _odd_but_accepted() -> list[Case]:
    """Returns images and rows that look wrong, and are not."""
    return [
        Case(
            kind="larger than --max-side",
            fate=WRITTEN,
            shape=(100, 40, 3),
            data=encode(_pixels(21).resize((400, 1000), Image.Resampling.NEAREST), "JPEG"),
            drawn=_pixels(21),
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
    """Returns pictures several times; the one of each that is written follows from their ids."""
    twin = _jpeg(90)
    photo = encode(_pixels(91, size=(240, 360)), "MPO", save_all=True, append_images=[_pixels(92)])
    start = photo.index(b"MPF\0") - 4
    end = start + 2 + int.from_bytes(photo[start + 2 : start + 4])
    alone = photo[:start] + photo[end : photo.index(b"\xff\xd9") + 2]
    return [
        Case(kind="same picture, first", fate=WRITTEN, data=twin),
        Case(kind="same picture, second", fate=DUPLICATE, data=twin),
        Case(kind="same pixels with a comment", fate=DUPLICATE, data=_jpeg(90, comment=b"hello")),
        Case(kind="a phone's photo", fate=WRITTEN, data=photo),
        Case(kind="a phone's photo without its second picture", fate=DUPLICATE, data=alone),
    ]


TWINS = (
    {"same picture, first", "same picture, second", "same pixels with a comment"},
    {"a phone's photo", "a phone's photo without its second picture"},
)


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
        Case(kind="JPEG of 12 bits", fate="unsupported_format", data=_jpeg_of_12_bits()),
        Case(
            kind="BMP of 4 bits a color",
            fate="unsupported_format",
            name="m.bmp",
            data=_bitfields_bmp(),
        ),
    ]


def _damaged_images() -> list[Case]:
    """Returns images that can't be decoded, and those that are too small or too large."""
    jpeg, png, webp = _jpeg(27), encode(_pixels(29), "PNG"), encode(_pixels(30), "WEBP")
    middle = (jpeg.rindex(b"\xff\xda") + len(jpeg)) // 2
    zeros = bytes(len(jpeg) - middle - 2)
    return [
        Case(
            kind="JPEG that ends with zeros",
            fate="corrupt",
            data=jpeg[:middle] + zeros + jpeg[-2:],
        ),
        Case(kind="half a JPEG with its end", fate="corrupt", data=jpeg[:middle] + jpeg[-2:]),
        Case(
            kind="JPEG with the end of another",
            fate="corrupt",
            data=jpeg[:middle] + encode(_pixels(52), "JPEG", quality=95)[middle - 200 :],
        ),
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
            kind="roll that becomes 2 pixels wide",
            fate="too_small",
            data=encode(_pixels(55, size=(40, 2000)), "JPEG"),
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
    return [_written("HEIC", "l.heic", encode(_pixels(44), "HEIF"), _pixels(44))]


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
