"""The peers."""

from dataclasses import dataclass
from types import MappingProxyType

from benchmarks.peers.output import Output
from benchmarks.peers.stored import Storage

_PEERS = "make .venv-peers/ready"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """An input pipeline that others are compared with.

    Attributes:
      title: what it is called in tables.
      packages: distributions whose versions matter.
      install: how it is installed.
      storages: what it reads: JPEG files, pixels.
      channels: what it makes of them.
      fits: how it can fit JPEG files into a size.
      takes_workers: whether one must tell it how many threads or processes to use.
    """

    title: str
    packages: tuple[str, ...]
    install: str = _PEERS
    storages: tuple[Storage, ...] = ("jpeg",)
    channels: tuple[int, ...] = (1, 3)
    fits: tuple[str, ...] = ("pad", "stretch")
    takes_workers: bool = True

    def refusal(self, storage: Storage, output: Output) -> str:
        """Returns a reason not to measure this peer, "" if there is none."""
        if storage not in self.storages:
            return f"takes no part in comparisons of {storage} storage"
        if output.channels not in self.channels:
            return f"makes no images of {output.channels} channel"
        if storage == "jpeg" and output.fit not in self.fits:
            return f"can't {output.fit} JPEG files while it decodes them"
        return ""


# A name is that of a module of this package.
PEERS = MappingProxyType(
    {
        "tillroll": Peer(
            title="tillroll",
            packages=("tillroll", "tensorflow"),
            install="pip install 'tillroll[train]'",
            storages=("jpeg", "raw"),
            takes_workers=False,
        ),
        "records": Peer(
            title="tillroll Records",
            packages=("tillroll", "torch"),
            storages=("jpeg", "raw"),
        ),
        "tf_data_tfrecord": Peer(
            title="tf.data, TFRecord, as in its guide",
            packages=("tensorflow",),
            install="pip install 'tillroll[train]'",
            storages=("jpeg", "raw"),
            takes_workers=False,
        ),
        "tf_data_files": Peer(
            title="tf.data, image files, as in its guide",
            packages=("tensorflow",),
            install="pip install 'tillroll[train]'",
            takes_workers=False,
        ),
        "tf_data_map": Peer(
            title="tf.data, image files, a plain map",
            packages=("tensorflow",),
            install="pip install 'tillroll[train]'",
            takes_workers=False,
        ),
        "tensorflow_datasets": Peer(
            title="TensorFlow Datasets",
            packages=("tensorflow-datasets", "tensorflow"),
            takes_workers=False,
        ),
        "grain": Peer(
            title="Grain, ArrayRecord, OpenCV",
            packages=("grain", "array-record", "opencv-python-headless"),
        ),
        "webdataset": Peer(
            title="WebDataset, OpenCV",
            packages=("webdataset", "torch", "opencv-python-headless"),
        ),
        "litdata": Peer(
            title="LitData, OpenCV",
            packages=("litdata", "torch", "opencv-python-headless"),
        ),
        "streaming": Peer(
            title="MosaicML Streaming, OpenCV",
            packages=("mosaicml-streaming", "torch", "opencv-python-headless"),
        ),
        "dali": Peer(title="DALI, CPU", packages=("nvidia-dali-cuda130",)),
        "ffcv": Peer(
            title="FFCV",
            packages=("ffcv", "torch"),
            install=(
                "apt-get install g++ pkg-config libopencv-dev libturbojpeg0-dev, then "
                "pip install --no-build-isolation --no-deps ffcv and "
                "pip install numba terminaltables assertpy fastargs pytorch-pfn-extras"
            ),
            storages=("jpeg", "raw"),
            channels=(3,),
            fits=("stretch",),
        ),
        "ceiling": Peer(
            title="ceiling: libjpeg-turbo and a resize, nothing else",
            packages=("simplejpeg", "opencv-python-headless"),
        ),
    }
)
