"""Images decoded without TensorFlow: those of the input pipeline but for rounding."""

import numpy as np
import pytest
from PIL import Image

from pipeline.records.images import decode_image
from tests.support.pictures import encode

WHITE = 255


def page(height: int, width: int) -> np.ndarray:
    """Smooth waves, which look alike at any scale."""
    rows, columns = np.mgrid[:height, :width]
    waves = [np.sin(6 * rows / height + k) * np.cos(5 * columns / width - k) for k in range(3)]
    return (np.stack(waves, axis=-1) * 100 + 128).astype(np.uint8)


def jpeg(image: np.ndarray) -> bytes:
    return encode(Image.fromarray(image), "JPEG", quality=95, subsampling=0)


@pytest.mark.parametrize("fit", ["pad", "stretch", "top"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "size", [(1024, 269), (1023, 700), (400, 1024), (256, 256), (90, 70), (2000, 31)]
)
def test_pixels_are_those_of_the_input_pipeline(size: tuple[int, int], channels: int, fit: str):
    tf = pytest.importorskip("tensorflow")
    from pipeline.config import InputConfig
    from pipeline.input.decode import jpeg_image

    file = jpeg(page(*size))
    made = decode_image(file, height=200, width=256, channels=channels, fit=fit)
    config = InputConfig(height=200, width=256, channels=channels, fit=fit)
    expected = jpeg_image(tf.constant(file), tf.constant(size), config).numpy()
    assert made.shape == expected.shape
    assert made.flags.writeable
    difference = np.abs(made.astype(int) - expected)
    assert difference.mean() < 1.5
    if min(size) > 70:
        assert ((made == WHITE).all(-1) == (expected == WHITE).all(-1)).mean() > 0.999


def test_stored_pixels_are_fitted():
    pixels = page(100, 50)
    np.testing.assert_array_equal(decode_image(pixels, height=100, width=50), pixels)
    padded = decode_image(pixels, height=100, width=80)
    np.testing.assert_array_equal(padded[:, 15:65], pixels)
    assert (padded[:, :15] == WHITE).all()
    assert (padded[:, 65:] == WHITE).all()
    gray = decode_image(pixels[..., :1], height=100, width=50, channels=3)
    np.testing.assert_array_equal(gray, pixels[..., :1].repeat(3, axis=2))


def test_what_is_cut_off_below_is_not_shown():
    pixels = page(400, 100)
    made = decode_image(pixels, height=150, width=100, fit="top")
    np.testing.assert_array_equal(made, pixels[:150])


def test_a_large_file_is_decoded_at_a_smaller_scale(monkeypatch: pytest.MonkeyPatch):
    sizes = []
    convert = Image.Image.convert
    monkeypatch.setattr(
        Image.Image, "convert", lambda self, mode: sizes.append(self.size) or convert(self, mode)
    )
    file = jpeg(page(1024, 768))
    for side in (128, 250, 256, 512, 700):
        decode_image(file, height=side, width=side)
    assert sizes == [(96, 128), (192, 256), (192, 256), (384, 512), (768, 1024)]


@pytest.mark.parametrize(
    "options", [{"height": 0}, {"channels": 4}, {"fit": "crop"}, {"width": -1}]
)
def test_nonsense(options: dict[str, object]):
    with pytest.raises(ValueError, match="height and width must be at least 1, channels 1 or 3"):
        decode_image(page(8, 8), **{"height": 8, "width": 8, **options})


@pytest.mark.parametrize("data", [b"", b"nothing", jpeg(page(300, 300))[:2000]])
def test_bytes_that_are_no_image(data: bytes):
    with pytest.raises(ValueError, match="the image can't be decoded: "):
        decode_image(data, height=8, width=8)
