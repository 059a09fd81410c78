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
    """Stretched to the output's size."""
    scaled = cv2.resize(pixels, (output.width, output.height), interpolation=cv2.INTER_LINEAR)
    return scaled.reshape(output.shape[1:])
