"""The file that a model is given has the pixels of the record that a build would make."""

import io

import numpy as np
import pytest
from PIL import Image, ImageCms

pytest.importorskip("apache_beam")

from beam_jobs.images.image import ImageOptions, StoredImage, store_image
from beam_jobs.images.image_file import image_file
from beam_jobs.rejection import Reason, RejectionError
from tests.support.pictures import encode

OPTIONS = {
    "as it comes": ImageOptions(),
    "small": ImageOptions(max_side=64),
    "gray": ImageOptions(channels=1),
    "raw": ImageOptions(encoding="raw", raw_size=(40, 48), channels=3),
    "raw gray": ImageOptions(encoding="raw", raw_size=(40, 48), channels=1, fit="stretch"),
}


def picture(mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(3).integers(0, 256, (60, 90, 3), np.uint8)
    return Image.fromarray(pixels).convert(mode)


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encode(picture(), "JPEG", exif=exif.tobytes())


def with_profile(name: str) -> bytes:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes()
    return encode(picture(), "JPEG", icc_profile=profile)


FILES = {
    "JPEG": encode(picture(), "JPEG"),
    "gray JPEG": encode(picture("L"), "JPEG"),
    "CMYK": encode(picture("CMYK"), "JPEG"),
    "turned": turned(),
    "sRGB": with_profile("sRGB"),
    "XYZ": with_profile("XYZ"),
    "data behind the end": encode(picture(), "JPEG") + b" more",
    "PNG": encode(picture("RGBA"), "PNG"),
    "WebP": encode(picture(), "WEBP"),
}


def fails(*_: object) -> StoredImage:
    raise AssertionError("the image is small")


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_it_is_what_a_record_holds(data: bytes, options: ImageOptions) -> None:
    stored = store_image(data, [], options)
    made = image_file(data, options, large=fails)
    if stored.format == "jpeg":
        assert made == stored.encoded
    else:
        image = Image.open(io.BytesIO(made))
        assert image.format == "PNG"
        assert image.tobytes() == stored.encoded
        assert image.size == (stored.width, stored.height)


def test_a_file_that_is_kept_is_not_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    def store(*_: object, **__: object) -> None:
        raise AssertionError("it is prepared")

    monkeypatch.setattr("beam_jobs.images.image_file.store_image", store)
    for name in ("JPEG", "gray JPEG", "sRGB", "data behind the end"):
        assert image_file(FILES[name], ImageOptions(), large=fails)
    for name in FILES.keys() - {"JPEG", "gray JPEG", "sRGB", "data behind the end"}:
        with pytest.raises(AssertionError, match="it is prepared"):
            image_file(FILES[name], ImageOptions(), large=fails)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.FILE_EMPTY),
        (b"text", Reason.NOT_AN_IMAGE),
        (FILES["JPEG"][:-500], Reason.TRUNCATED),
        (FILES["JPEG"][:-500] + FILES["JPEG"][-2:], Reason.CORRUPT),
        (FILES["PNG"][:-500], Reason.TRUNCATED),
    ],
)
def test_what_is_no_image_is_refused(data: bytes, reason: Reason) -> None:
    with pytest.raises(RejectionError) as error:
        image_file(data, ImageOptions(), large=fails)
    assert error.value.reason == reason
