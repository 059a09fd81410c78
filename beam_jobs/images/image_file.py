"""The image file that a model is given: as a record of a dataset would hold it, or the same pixels.

A model sees of an image what it would see of a record made of it, whatever its format. Most JPEG
files would be stored as they are: they aren't decoded here, as the model does that anyway.
"""

import io
from collections.abc import Callable, Sequence

from PIL import Image

from beam_jobs.images.color import is_srgb
from beam_jobs.images.decode_limits import memory_bytes
from beam_jobs.images.image import (
    LARGE_BYTES,
    ImageOptions,
    StoredImage,
    make_plan,
    open_image,
    store_image,
)
from beam_jobs.images.jpeg_decoder import check_jpeg_pixels, decodes
from beam_jobs.images.kept_jpeg import kept_bytes
from beam_jobs.sources.row import Box

_MODES = {1: "L", 3: "RGB"}


def image_file(
    data: bytes,
    options: ImageOptions,
    *,
    large: Callable[[bytes, Sequence[Box]], StoredImage],
) -> bytes:
    """Turns an image file into the JPEG file, or for raw images the PNG file, for a model.

    Args:
      data: the image file.
      options: how the images of the model's dataset were prepared.
      large: as in `image.store_image`.

    Raises:
      RejectionError: the file is not an acceptable image. A file that is passed on undecoded may
        still be one that the model can't decode.
    """
    kept = _kept_undecoded(data, options)
    return kept or file_of(store_image(data, (), options, large=large))


def file_of(stored: StoredImage) -> bytes:
    """Returns the file of a stored image: JPEG, or PNG for raw pixels."""
    if stored.format == "jpeg":
        return stored.encoded
    return png_of_pixels(
        stored.encoded, height=stored.height, width=stored.width, channels=stored.channels
    )


def png_of_pixels(pixels: bytes, *, height: int, width: int, channels: int) -> bytes:
    """Makes a PNG file of raw pixels."""
    buffer = io.BytesIO()
    # Hardly compressed: it is decoded at once.
    Image.frombytes(_MODES[channels], (width, height), pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _kept_undecoded(data: bytes, options: ImageOptions) -> bytes | None:
    """Returns the bytes that a record would hold if they are the file's own, else None."""
    image = open_image(data, options)
    plan = make_plan(image, options)
    profile = image.info.get("icc_profile")
    modes = set(_MODES.values()) if options.channels is None else {_MODES[options.channels]}
    kept = (
        options.encoding == "jpeg"
        and plan.may_keep
        and not options.restart_rows
        and max(plan.file_size) <= options.max_side
        and image.mode in modes
        and (profile is None or image.mode != "RGB" or is_srgb(profile))
        and memory_bytes(image) <= LARGE_BYTES
        and decodes(data, image.mode)
    )
    if not kept or not (file := kept_bytes(data)):
        return None
    check_jpeg_pixels(data)
    return file
