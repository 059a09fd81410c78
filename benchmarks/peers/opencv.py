"""Images decoded by OpenCV, for the peers that leave decoding to their users.

OpenCV decodes JPEG twice as fast as Pillow and lets go of the interpreter's lock.
"""

import cv2
import numpy as np
import numpy.typing as npt

from benchmarks.peers.output import Output

cv2.setNumThreads(0)  # the peers have workers of their own


def decoded(encoded: bytes, output: Output) -> npt.NDArray[np.uint8]:
    """A JPEG file to uint8 [height, width, channels]."""
    flags = cv2.IMREAD_COLOR_RGB if output.channels == 3 else cv2.IMREAD_GRAYSCALE
    return resized(cv2.imdecode(np.frombuffer(encoded, np.uint8), flags), output)


def resized(pixels: npt.NDArray[np.uint8], output: Output) -> npt.NDArray[np.uint8]:
    """Fitted into the output's size."""
    height, width = output.inner(*pixels.shape[:2])
    scaled = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)
    scaled = scaled.reshape(height, width, output.channels)
    if (height, width) == (output.height, output.width):
        return scaled
    padded = np.full(output.shape[1:], 255, np.uint8)
    top, left = (output.height - height) // 2, (output.width - width) // 2
    padded[top : top + height, left : left + width] = scaled
    return padded
