"""The bytes of a JPEG file that a record may hold as they are."""

from schemas.jpeg import check_jpeg

_END = b"\xff\xd9"


def kept_bytes(data: bytes) -> bytes | None:
    """Returns a JPEG file up to its end marker, or None if TensorFlow would not decode that.

    Pillow reads no further than the last row of pixels, TensorFlow up to the end marker. Cameras
    write data of their own behind it.
    """
    # Without an end marker, one byte is left of the file, which the check refuses.
    data = data[: data.rfind(_END) + len(_END)]
    try:
        check_jpeg(data)
    except ValueError:
        return None
    return data
