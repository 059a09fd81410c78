"""One receipt image: decoded, upright, 8-bit RGB or grayscale, fitted and stored."""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import PIL
import simplejpeg
import xxhash
from PIL import Image, TiffImagePlugin, UnidentifiedImageError

from beam_jobs.images.boxes import EXIF_TRANSPOSED, relative_boxes
from beam_jobs.images.color import in_color
from beam_jobs.images.decode_limits import check_limits, memory_bytes
from beam_jobs.images.jpeg_decoder import SCALES, check_hidden_damage, decode_jpeg, decodes
from beam_jobs.images.kept_jpeg import kept_bytes
from beam_jobs.images.orientation import ignore_xmp, orientation_of
from beam_jobs.images.restart_rows import encode, encode_again
from beam_jobs.images.tiff import check_tiff, gray_levels
from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.sources.row import Box

try:
    import pillow_heif
except ImportError:
    pillow_heif = None
else:
    pillow_heif.register_heif_opener()
_HEIF_VERSION = pillow_heif.__version__ if pillow_heif else None
DECODER_VERSIONS = (PIL.__version__, simplejpeg.__version__, _HEIF_VERSION)

FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "TIFF", "BMP", "GIF", "HEIF")
_KINDS = {b"II": "TIFF", b"MM": "TIFF", b"BM": "BMP", b"\xff\xd8": "JPEG", b"\x89P": "PNG"}
_JPEG_FORMATS = ("JPEG", "MPO")  # of one picture, and of several: the first is taken
_ROUNDING = 0.01  # pixels
_ROLL = 16  # times as long as wide; raw images of others may be meant to be tiny
LARGE_BYTES = 512 << 20  # of 38 megapixels, which take longer to decode than a process to start


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options of preparing images; equal options and inputs give equal bytes.

    Attributes:
      encoding: "jpeg", or "raw" for decoded pixels of one fixed size.
      max_side: longest side of a stored JPEG in pixels; larger images are scaled down.
      quality: JPEG quality, 1 to 95.
      raw_size: (height, width) of raw images in pixels.
      fit: raw images are fitted into `raw_size` with white padding, or stretched to it.
      channels: 1 for grayscale, 3 for RGB, None to keep grayscale inputs gray.
      max_pixels: larger images are rejected before they are decoded.
      min_side: images whose shorter side, in pixels, is smaller are rejected: in the file or, if
        they are more than 16 times as long as wide, as it is stored.
      max_input_bytes: larger files are rejected undecoded.
      max_memory_bytes: images that may take more memory to prepare are rejected undecoded.
      max_seconds: processor time for an image that is prepared in a process of its own; a worker
        that needs ten times as long for an image is ended, see `watchdog`.
      box_frame: boxes are given in the pixels "stored" in the file, or "upright", as a viewer
        that obeys the EXIF orientation shows them.
      full_decode: JPEG files are decoded at full scale and in color, so that copies in lossless
        formats are duplicates. False decodes them at the scale and in the channels that suffice for
        what is stored.
      restart_rows: any rows of stored JPEG files can be decoded without the others, see
        `schemas.restart_rows`. No file is kept as it is.
    """

    encoding: Literal["jpeg", "raw"] = "jpeg"
    max_side: int = 1024
    quality: int = 90
    raw_size: tuple[int, int] = (256, 256)
    fit: Literal["pad", "stretch"] = "pad"
    channels: Literal[1, 3] | None = None
    max_pixels: int = 100_000_000
    min_side: int = 16
    max_input_bytes: int = 256 << 20
    max_memory_bytes: int = 2 << 30
    max_seconds: int = 60
    box_frame: Literal["stored", "upright"] = "stored"
    full_decode: bool = True
    restart_rows: bool = False

    def __post_init__(self) -> None:
        for name, low, high in (
            ("max_side", 16, 65_500),
            ("quality", 1, 95),
            ("max_pixels", 1, 2**31),
            ("min_side", 1, 65_500),
            ("max_input_bytes", 1, 2**30),
            ("max_memory_bytes", 2**20, 2**40),
            ("max_seconds", 1, 86_400),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must be {low} to {high}, got {value}")
        if not all(16 <= side <= 16_384 for side in self.raw_size):
            raise ValueError(f"raw_size must be sides of 16 to 16384 pixels, got {self.raw_size}")
        if self.encoding == "raw" and self.channels is None:
            raise ValueError("raw images need one fixed size: set channels to 1 or 3")
        if self.encoding == "raw" and self.restart_rows:
            raise ValueError("`restart_rows` is for JPEG files, and encoding is raw: leave it out")

    @property
    def typical_bytes(self) -> int:
        """About what a stored image takes, for plans made before any is read."""
        if self.encoding == "raw":
            return self.raw_size[0] * self.raw_size[1] * (self.channels or 3)
        return self.max_side * self.max_side // 10  # receipts at quality 90: 0.8 bits a pixel


@dataclass(frozen=True, kw_only=True)
class StoredImage:
    """An image as a record holds it.

    Attributes:
      encoded: the JPEG file, or raw pixels.
      format: "jpeg" or "raw".
      height, width, channels: shape of the stored image.
      boxes: text lines, 0 to 1 of the stored width and height.
      clipped_boxes: number of boxes that reached beyond the image.
      pixels: the image decoded and upright, before it was fitted; None if another process prepared
        it.
      pixels_hash: 128 bits, equal for duplicates: hash of the full size and the pixels.
      full_size: width and height of the upright image at full scale, in which it need not have been
        decoded.
    """

    encoded: bytes
    format: str
    height: int
    width: int
    channels: int
    boxes: tuple[Box, ...]
    clipped_boxes: int
    pixels: Image.Image | None
    pixels_hash: int
    full_size: tuple[int, int]

    def open(self) -> Image.Image:
        """Opens what is stored."""
        shape = (self.height, self.width, self.channels)
        return open_stored(self.encoded, shape if self.format == "raw" else None)


def open_stored(encoded: bytes, raw_shape: tuple[int, int, int] | None) -> Image.Image:
    """Opens the image of a record: a JPEG file, or raw pixels of a shape."""
    if raw_shape is None:
        return Image.open(io.BytesIO(encoded))
    height, width, channels = raw_shape
    return Image.frombytes("RGB" if channels == 3 else "L", (width, height), encoded)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Steps from an opened image to upright pixels, chosen before anything is decoded.

    Attributes:
      file_size: width and height as the file stores the image.
      full_size: width and height upright, at full scale.
      orientation: EXIF orientation of the file, 1 to 8.
      turn: orientation that is left to apply to the decoded pixels; 1 where Pillow applies it.
      scale: 1, or 2, 4 or 8 for a JPEG file whose sides are divided by that as it is decoded.
      may_keep: True if the bytes of the file may be stored as they are: an upright JPEG file.
    """

    file_size: tuple[int, int]
    full_size: tuple[int, int]
    orientation: int
    turn: int
    scale: int
    may_keep: bool


class _Hasher(io.BytesIO):
    """A file that keeps only the hash of what is written; SHA-256 would take 20 times as long."""

    def __init__(self, begin: bytes) -> None:
        super().__init__()
        self.digest = xxhash.xxh3_128(begin)

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return len(data)


def without_pixels(stored: StoredImage) -> StoredImage:
    """Returns the image without its pixels, to be sent to another process."""
    return replace(stored, pixels=None)


def store_image(
    data: bytes,
    boxes: Sequence[Box],
    options: ImageOptions,
    *,
    large: Callable[[bytes, Sequence[Box]], StoredImage] | None = None,
) -> StoredImage:
    """Turns an image file and its boxes into what the record holds.

    Args:
      data: the image file.
      boxes: text lines in pixels, in the frame `options.box_frame`.
      options: how images are prepared.
      large: function that prepares an image which needs much memory, in another process.

    Raises:
      RejectionError: the file is not an acceptable image, or a box has no area inside it.
    """
    image = open_image(data, options)
    if large and memory_bytes(image) > LARGE_BYTES:
        return large(data, boxes)
    plan = make_plan(image, options)
    _check_stored_size(plan.full_size, options)
    relative, clipped = relative_boxes(boxes, plan.file_size, plan.orientation, options.box_frame)
    converted, unchanged = _decode(image, data, plan, options)
    del image  # and its memory, before there is a third copy
    pixels = _upright(converted, plan.turn)
    del converted
    if options.encoding == "raw":
        fitted, relative = _fit_raw(pixels, relative, options)
        encoded, stored_format = fitted.tobytes(), "raw"
    else:
        fitted = _within(pixels, plan.full_size, options.max_side)
        kept = kept_bytes(data) if unchanged and fitted.size == plan.file_size else None
        if options.restart_rows:
            encoded = encode_again(kept) if kept else encode(fitted, options.quality)
        else:
            encoded = kept or _jpeg(fitted, options.quality)
        stored_format = "jpeg"
    return StoredImage(
        encoded=encoded,
        format=stored_format,
        height=fitted.height,
        width=fitted.width,
        channels=len(fitted.getbands()),
        boxes=relative,
        clipped_boxes=clipped,
        pixels=pixels,
        pixels_hash=_pixels_hash(pixels, plan.full_size),
        full_size=plan.full_size,
    )


def _pixels_hash(pixels: Image.Image, full_size: tuple[int, int]) -> int:
    hasher = _Hasher(str(full_size).encode())
    pixels.save(hasher, "PPM")  # piece by piece: joined first, it takes six times as long
    return hasher.digest.intdigest()


def make_plan(image: Image.Image, options: ImageOptions) -> Plan:
    """Plans the preparation of an opened image."""
    orientation = orientation_of(image)
    file_size = image.size
    # Pillow turns a TIFF itself as it loads it, and gives its size as turned.
    turned_by_pillow = image.format == "TIFF"
    if turned_by_pillow and orientation in EXIF_TRANSPOSED:
        file_size = file_size[::-1]
    scale = 1
    if options.encoding == "jpeg" and image.format in _JPEG_FORMATS and not options.full_decode:
        # Scaled decoding is cheaper and leaves at least max_side for the final resampling.
        sides = _scaled(file_size, min(1, options.max_side / max(file_size)))
        scale = next(
            scale
            for scale in SCALES
            if all(size // side >= scale for size, side in zip(file_size, sides, strict=True))
        )
    return Plan(
        file_size=file_size,
        full_size=file_size[::-1] if orientation in EXIF_TRANSPOSED else file_size,
        orientation=orientation,
        turn=1 if turned_by_pillow else orientation,
        scale=scale,
        may_keep=image.format == "JPEG" and orientation == 1,
    )


def _decode(
    image: Image.Image, data: bytes, plan: Plan, options: ImageOptions
) -> tuple[Image.Image, bool]:
    """Decodes an opened image to 8-bit RGB or grayscale.

    Returns:
      The pixels, not yet turned, and whether they are those of a file that may be kept.
    """
    profile, file_mode = image.info.get("icc_profile"), image.mode
    if image.format in _JPEG_FORMATS and decodes(data, file_mode):
        # The luma channel alone is cheaper still.
        luma = options.channels == 1 and file_mode == "RGB" and not options.full_decode
        image = decode_jpeg(data, "L" if luma else file_mode, scale=plan.scale)
    else:
        if image.format in _JPEG_FORMATS:
            check_hidden_damage(data)
        _load(image, data)
    converted = in_color(image, options.channels, profile, gray_levels(image))
    unchanged = plan.may_keep and converted is image and image.mode == file_mode
    return converted, unchanged


def open_image(data: bytes, options: ImageOptions) -> Image.Image:
    """Opens an image, of which nothing is decoded yet.

    Raises:
      RejectionError: it is no image, or decoding it would exceed a limit.
    """
    if not data:
        raise RejectionError(Reason.FILE_EMPTY, "the file is empty")
    Image.MAX_IMAGE_PIXELS = None  # max_pixels below is the limit, checked before decoding
    try:
        image = Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        if kind := _KINDS.get(data[:2]):
            raise RejectionError(
                Reason.UNSUPPORTED_FORMAT,
                f"starts as a {kind} file, of a kind that Pillow can't decode: convert it to PNG",
            ) from None
        message = f"no image format known to Pillow; starts with {data[:8]!r}"
        if data[4:8] == b"ftyp" and pillow_heif is None:
            message += ": for HEIC, install tillroll[heic] wherever the job's workers run"
        raise RejectionError(Reason.NOT_AN_IMAGE, message) from None
    except Exception as error:  # a broken header can raise almost anything in a Pillow plugin
        raise _undecodable(error, "the image's header is broken") from error
    if image.format not in FORMATS:
        raise RejectionError(
            Reason.UNSUPPORTED_FORMAT,
            f"format {image.format} is not accepted: convert it to one of {', '.join(FORMATS)}",
        )
    width, height = image.size
    if width * height > options.max_pixels:
        raise RejectionError(
            Reason.TOO_MANY_PIXELS,
            f"{width}×{height} pixels are more than the {options.max_pixels} allowed: "
            "raise --max-pixels if the image is genuine",
        )
    if min(width, height) < options.min_side:
        raise RejectionError(
            Reason.TOO_SMALL,
            f"{width}×{height} pixels; the shorter side must be at least {options.min_side}",
        )
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        check_tiff(image)
        ignore_xmp(image)
    check_limits(
        image, data, max_pixels=options.max_pixels, max_memory_bytes=options.max_memory_bytes
    )
    return image


def _check_stored_size(full_size: tuple[int, int], options: ImageOptions) -> None:
    """Raises RejectionError if an image is scaled to so few pixels that no word of it is left."""
    stored = _stored_size(full_size, options)
    if min(stored) < options.min_side and max(full_size) > _ROLL * min(full_size):
        (width, height), limit = full_size, f"--max-side {options.max_side}"
        if options.encoding == "raw":
            limit = "--raw-size {}x{}".format(*options.raw_size)
        raise RejectionError(
            Reason.TOO_SMALL,
            f"{width}×{height} pixels become {stored[0]}×{stored[1]} by {limit}, of which the "
            f"shorter side must be at least {options.min_side}: cut the image into parts",
        )


def _stored_size(full_size: tuple[int, int], options: ImageOptions) -> tuple[int, int]:
    """Returns width and height that an image has after scaling, without what it is padded with."""
    if options.encoding == "jpeg":
        return _scaled(full_size, min(1, options.max_side / max(full_size)))
    height, width = options.raw_size
    if options.fit == "stretch":
        return width, height
    return _scaled(full_size, min(width / full_size[0], height / full_size[1]))


def _scaled(size: tuple[int, int], scale: float) -> tuple[int, int]:
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _load(image: Image.Image, data: bytes) -> None:
    try:
        image.load()
        if image.format == "PNG":  # decoding ignores the checksums of the pixels
            Image.open(io.BytesIO(data)).verify()
    except Exception as error:  # Pillow's plugins raise OSError, SyntaxError, struct.error, …
        raise _undecodable(error, "decoding failed") from error


def _undecodable(error: Exception, what: str) -> RejectionError:
    if isinstance(error, MemoryError):
        raise error  # of this machine, not of the image
    if "unsupported" in str(error).lower():
        return RejectionError(
            Reason.UNSUPPORTED_FORMAT, f"Pillow can't decode it ({error}): convert it to PNG"
        )
    early = "truncated" in str(error).lower() or isinstance(error, EOFError)
    return RejectionError(Reason.TRUNCATED if early else Reason.CORRUPT, f"{what}: {error!r}")


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    method = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }.get(orientation)
    return image if method is None else image.transpose(method)


def _within(image: Image.Image, full_size: tuple[int, int], max_side: int) -> Image.Image:
    """Scales down to `max_side`; the size follows from the full size, not from the decoded one."""
    scale = max_side / max(full_size)
    if scale >= 1:
        return image
    # Squares of pixels are averaged first, as far as at least 1.5 times the pixels are left for the
    # filter: a photo of 12 megapixels takes half the time. In real receipts that changes the pixels
    # by 1.2 of 255 levels (root mean square), a JPEG decoder's reduced scale by 4 to 18.
    return image.resize(_scaled(full_size, scale), Image.Resampling.LANCZOS, reducing_gap=1.5)


def _fit_raw(
    image: Image.Image, boxes: tuple[Box, ...], options: ImageOptions
) -> tuple[Image.Image, tuple[Box, ...]]:
    height, width = options.raw_size
    if options.fit == "stretch":
        return image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=2.0), boxes
    scale = min(width / image.width, height / image.height)
    # Rounded up as in `pipeline.input.fit`, but not where only the arithmetic is off.
    across, down = (max(1, math.ceil(side * scale - _ROUNDING)) for side in image.size)
    inner = image.resize((min(across, width), min(down, height)), Image.Resampling.LANCZOS)
    left, top = (width - inner.width) // 2, (height - inner.height) // 2
    canvas = Image.new(image.mode, (width, height), "white")
    canvas.paste(inner, (left, top))
    moved = tuple(
        (
            (left + x0 * inner.width) / width,
            (top + y0 * inner.height) / height,
            (left + x1 * inner.width) / width,
            (top + y1 * inner.height) / height,
            text,
        )
        for x0, y0, x1, y1, text in boxes
    )
    return canvas, moved


def _jpeg(image: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
