"""Encoders of image files that Pillow reads, or refuses, but does not write."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

# Tells to turn an image by 90 degrees; editors leave it behind that have turned the pixels already.
XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF '
    b'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description '
    b'xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>'
)
_TYPE = {3: "H", 4: "I"}  # of TIFF's SHORT and LONG


def lossless_jpeg(pixels: np.ndarray) -> bytes:
    """Encodes gray pixels, uint8 [height, width], as a lossless frame (ITU-T T.81, annex H).

    Each pixel is predicted by its left neighbor. The size in bits of what it differs by is coded
    in four bits, then come the bits themselves.
    """
    rows = pixels.astype(int)
    predicted = np.empty_like(rows)
    predicted[:, 1:] = rows[:, :-1]
    predicted[1:, 0] = rows[:-1, 0]
    predicted[0, 0] = 128
    differences = (rows - predicted).ravel().tolist()
    bits = "".join(map(_difference_code, differences))
    bits += "1" * (-len(bits) % 8)
    scan = int(bits, 2).to_bytes(len(bits) // 8).replace(b"\xff", b"\xff\0")
    codes = bytes([0, 0, 0, 0, 9, *[0] * 12, *range(9)])  # nine codes of four bits: sizes 0 to 8
    frame = struct.pack(">BHHB", 8, *pixels.shape, 1) + bytes([1, 0x11, 0])
    header = bytes([1, 1, 0, 1, 0, 0])
    segments = _segment(0xC4, codes) + _segment(0xC3, frame) + _segment(0xDA, header)
    return b"\xff\xd8" + segments + scan + b"\xff\xd9"


def _difference_code(difference: int) -> str:
    size = abs(difference).bit_length()
    value = difference if difference > 0 else difference + (1 << size) - 1
    return f"{size:04b}" + (f"{value:0{size}b}" if size else "")


def _segment(marker: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def tiff(
    strips: Sequence[bytes],
    size: tuple[int, int],
    bits: int,
    photometric: int,
    *,
    samples: int = 1,
    planar: int = 1,
    **tags: Any,
) -> bytes:
    """Makes a little-endian TIFF file without compression.

    Args:
      strips: the pixels' bytes, a strip for each plane.
      size: width and height.
      bits: of a sample.
      photometric: its PhotometricInterpretation: 0 and 1 gray with white or black as zero, 2 RGB.
      samples: of a pixel.
      planar: its PlanarConfiguration: 1 for pixels one after the other, 2 for planes.
      **tags: further tags as `t339=(3,)`, of the type SHORT.
    """
    width, height = size
    values: dict[int, tuple[int, Sequence[int]]] = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [bits] * samples),
        259: (3, [1]),
        262: (3, [photometric]),
        273: (4, [0] * len(strips)),
        277: (3, [samples]),
        278: (4, [height]),
        279: (4, [len(strip) for strip in strips]),
        284: (3, [planar]),
        **{int(name[1:]): (3, value) for name, value in tags.items()},
    }
    directory_bytes = 2 + 12 * len(values) + 4
    far = sum(_size(*value) for value in values.values() if _size(*value) > 4)
    first_strip = 8 + directory_bytes + far
    values[273] = (4, [first_strip + sum(map(len, strips[:n])) for n in range(len(strips))])
    entries, extra = b"", b""
    for tag, (type_, value) in sorted(values.items()):
        encoded = struct.pack(f"<{len(value)}{_TYPE[type_]}", *value)
        if len(encoded) > 4:
            encoded, extra = (
                struct.pack("<I", 8 + directory_bytes + len(extra)),
                extra + encoded,
            )
        entries += struct.pack("<HHI", tag, type_, len(value)) + encoded.ljust(4, b"\0")
    directory = struct.pack("<IH", 8, len(values)) + entries + bytes(4)
    return b"II*\0" + directory + extra + b"".join(strips)


def _size(type_: int, value: Sequence[int]) -> int:
    return len(value) * struct.calcsize(f"<{_TYPE[type_]}")
