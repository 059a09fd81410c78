"""The orientation of an image file by its EXIF data alone, as viewers and TensorFlow know it.

Pillow also takes the orientation of XMP data, which editors leave behind that have turned the
pixels already.
"""

from PIL import Image, TiffImagePlugin

_ORIENTATION = 0x0112
_PNG_TEXT = "Raw profile type exif"  # by ImageMagick: three lines, then hexadecimal digits


def orientation_of(image: Image.Image) -> int:
    """Returns the EXIF orientation of an opened image, 1 to 8; 1 if it has none that is valid."""
    if image.format == "HEIF":  # its decoder has turned the image already
        return 1
    try:
        value = _value(image)
    except Exception:  # broken EXIF data must not cost a good image
        return 1
    return value if value in range(1, 9) else 1


def ignore_xmp(image: Image.Image) -> None:
    """Keeps Pillow from turning an opened TIFF file as its XMP data say."""
    image.info.pop("xmp", None)


def _value(image: Image.Image) -> int:
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return image.tag_v2.get(_ORIENTATION, 1)
    if image.format == "PNG" and "exif" not in image.info:
        image.load()  # it may come after the pixels
    data = image.info.get("exif")
    if data is None and (text := image.info.get(_PNG_TEXT)):
        data = bytes.fromhex("".join(text.split("\n")[3:]))
    exif = Image.Exif()
    if data:
        exif.load(data)
    return exif.get(_ORIENTATION, 1)
