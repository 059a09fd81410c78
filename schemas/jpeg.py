"""The structure of a JPEG file, from which follows whether TensorFlow will decode it.

Pillow stops at the last row of pixels and decodes more kinds of JPEG than TensorFlow, which reads
on to the end marker. So a file that Pillow has decoded may still be one that training can't.
The markers are those of ITU-T T.81, table B.1.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

EOI, SOS = 0xD9, 0xDA
PROGRESSIVE = 0xC2
_FRAMES = (0xC0, 0xC1, PROGRESSIVE)  # baseline, extended and progressive
_OTHER_FRAMES = {
    0xC3: "lossless",
    0xC9: "arithmetic-coded",
    0xCA: "arithmetic-coded progressive",
    0xF7: "JPEG-LS",
}
# Tables (DHT, DAC, DQT), the restart interval (DRI), applications' data (APP0 to APP15), comments.
_BESIDE_FRAMES = (0xC4, 0xCC, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE)
# Within a scan, FF00 stands for the byte FF, and FFD0 to FFD7 are restart markers.
_END_OF_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7]")


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A marker of a JPEG file and what belongs to it.

    Attributes:
      marker: the second byte of the marker; the first is FF.
      offset: byte of the file at which the marker starts.
      header: the bytes behind the marker and its length; empty for EOI.
      end: byte behind the segment, of a scan behind its compressed data.
    """

    marker: int
    offset: int
    header: bytes
    end: int


def segments(data: bytes) -> Iterator[Segment]:
    """Yields the segments of a JPEG file, from behind its first marker to its end marker.

    A segment whose marker is SOS is a scan, with its compressed data. The time it takes depends on
    the bytes of the file alone, not on the pixels that they stand for.

    Raises:
      ValueError: no marker is where one must be, or the file ends before its end marker.
    """
    if data[:2] != b"\xff\xd8":
        raise ValueError(f"not a JPEG file: it starts with {data[:2].hex().upper() or 'nothing'}")
    segment = _segment(data, 2)
    while segment.marker != EOI:
        yield segment
        segment = _segment(data, segment.end)
    yield segment


def has_scalable_frame(data: bytes) -> bool:
    """Returns whether decoders can safely decode a JPEG file at a reduced scale.

    That is so for baseline, extended and progressive frames with Huffman codes. libjpeg-turbo does
    not scale lossless frames, and writes pixels beyond the memory that its callers give it.
    """
    try:
        for segment in segments(data):
            if segment.marker not in _BESIDE_FRAMES:
                return segment.marker in _FRAMES
    except ValueError:
        pass
    return False


def check_jpeg(data: bytes) -> None:
    """Checks that a file's markers describe a JPEG image that TensorFlow decodes.

    That is a baseline, extended or progressive Huffman-coded image of 8 bits and 1 or 3 components
    with nothing behind its end marker. The compressed data are not decoded.

    Raises:
      ValueError: it is something else, which the message names.
    """
    frame: Segment | None = None
    scans = 0
    complete = False  # one scan has held all components of a sequential file
    for segment in segments(data):
        if complete and segment.marker != EOI:
            # Pillow has all pixels and reads no further; TensorFlow does, and may fail.
            raise ValueError(
                f"JPEG file with a {_name(segment)}, behind its only scan: only its end may follow"
            )
        if segment.marker in _OTHER_FRAMES:
            raise ValueError(
                f"{_OTHER_FRAMES[segment.marker]} JPEG file: only baseline, extended and "
                "progressive files with Huffman codes are supported"
            )
        if segment.marker in _FRAMES:
            if frame:
                raise ValueError(f"JPEG file with a second frame: {_name(segment)}")
            _check_frame(segment)
            frame = segment
        elif segment.marker == SOS:
            if not frame:
                raise ValueError(f"JPEG file with a scan before its frame: {_name(segment)}")
            scans += 1
            # Both headers give a number of components. A progressive file refines its pixels scan
            # by scan, so there no single scan is all.
            complete = frame.marker != PROGRESSIVE and segment.header[0] == frame.header[5]
        elif segment.marker != EOI and segment.marker not in _BESIDE_FRAMES:
            raise ValueError(f"JPEG file with an unknown marker: {_name(segment)}")
    if not scans:
        raise ValueError("JPEG file without a scan")
    if segment.end < len(data):
        raise ValueError(f"JPEG file with {len(data) - segment.end} bytes behind its end marker")


def _segment(data: bytes, offset: int) -> Segment:
    """Reads the segment that starts at a byte; any number of FF may come before its marker."""
    position = offset
    while data[position : position + 1] == b"\xff":
        position += 1
    if position == len(data):
        raise ValueError("JPEG file without an end marker (FFD9)")
    marker = data[position]
    if position == offset or marker < 0xC0:
        raise ValueError(
            f"damaged JPEG file: a marker is due at byte {offset}, there is "
            f"{data[offset : offset + 2].hex().upper()}"
        )
    start = position + 1
    if marker == EOI:
        return Segment(marker=marker, offset=offset, header=b"", end=start)
    length = int.from_bytes(data[start : start + 2])
    end = start + length
    if length < 2 or end > len(data):
        raise ValueError(
            f"damaged JPEG file: the marker FF{marker:02X} at byte {offset} claims {length} bytes, "
            f"{len(data) - start} are left"
        )
    header = data[start + 2 : end]
    if marker == SOS:
        if not header:
            raise ValueError(f"damaged JPEG file: the scan at byte {offset} has no header")
        # Compressed data have no length: they go on up to the next marker.
        following = _END_OF_SCAN.search(data, end)
        if not following:
            raise ValueError("JPEG file without an end marker (FFD9)")
        end = following.start()
    return Segment(marker=marker, offset=offset, header=header, end=end)


def _check_frame(segment: Segment) -> None:
    if len(segment.header) < 6:
        raise ValueError(f"damaged JPEG file: the frame at byte {segment.offset} is too short")
    precision, height, width, components = struct.unpack(">BHHB", segment.header[:6])
    if precision != 8:
        raise ValueError(f"JPEG file of {precision} bits: only 8 are supported")
    if components not in (1, 3):
        raise ValueError(
            f"JPEG file of {components} components: only 1 (grayscale) and 3 (color) are supported"
        )
    if not height or not width:
        raise ValueError(f"JPEG file of {width}×{height} pixels: both sides must be positive")


def _name(segment: Segment) -> str:
    return f"marker FF{segment.marker:02X} at byte {segment.offset}"
