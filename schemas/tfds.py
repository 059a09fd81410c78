"""`features.json` and `dataset_info.json`, by which TensorFlow Datasets reads the newest version.

    tfds.builder_from_directory("data/receipts").as_dataset("train")

Format: `tfds.features.FeaturesDict.save_config`, and the proto `tensorflow_datasets.DatasetInfo` as
JSON, in which 64-bit integers are strings. Seen with TensorFlow Datasets 4.9.10.
"""

import json
from collections.abc import Mapping
from typing import Any

from schemas.file_names import TFDS_FEATURES, TFDS_INFO, TFDS_SHARD_TEMPLATE, shard_number
from schemas.manifest import Manifest, Split
from schemas.receipt import Feature, id_feature

_FEATURES = "tensorflow_datasets.core.features"
_DESCRIPTION = (
    "Receipt images and their labels, built by tillroll: dealt to shards so that each shard holds "
    "every layout's fair share."
)


def tfds_files(manifest: Manifest) -> dict[str, bytes]:
    """Makes the two files: name to bytes. Equal manifests give equal bytes."""
    return {TFDS_FEATURES: _json(_features(manifest)), TFDS_INFO: _json(_info(manifest))}


def _features(manifest: Manifest) -> dict[str, Any]:
    sizes = {id_feature(name): len(values) for name, values in manifest.vocabularies.items()}
    features = {
        feature.name: _image(manifest) if feature.name == "image/encoded" else _of(feature, sizes)
        for feature in manifest.features
    }
    return _connector("features_dict.FeaturesDict", featuresDict={"features": features})


def _of(feature: Feature, sizes: Mapping[str, int]) -> dict[str, Any]:
    if feature.name in sizes:
        return _connector(
            "class_label_feature.ClassLabel", classLabel={"numClasses": str(sizes[feature.name])}
        )
    if feature.dtype in ("bytes", "string"):
        one = _connector("text_feature.Text", text={})
    else:
        one = _connector("scalar.Scalar", tensor=_tensor(feature.dtype))
    if not feature.ragged:
        return one
    return _connector("sequence_feature.Sequence", sequence={"feature": one, "length": "-1"})


def _image(manifest: Manifest) -> dict[str, Any]:
    """JPEG files, or raw pixels, which all have one shape."""
    stored = manifest.build_options["image"]
    if stored["encoding"] == "raw":
        tensor = _tensor("uint8", *stored["raw_size"], stored["channels"], encoding="bytes")
        return _connector("tensor_feature.Tensor", tensor=tensor)
    # TensorFlow Datasets wants one number of channels: where color and gray are mixed, gray images
    # come with three equal ones.
    image = {"dtype": "uint8", "encodingFormat": "jpeg"}
    return _connector("image_feature.Image", image=image | _shape(-1, -1, stored["channels"] or 3))


def _tensor(dtype: str, *shape: int, encoding: str = "none") -> dict[str, Any]:
    return {"dtype": dtype, "encoding": encoding} | _shape(*shape)


def _shape(*dimensions: int) -> dict[str, Any]:
    return {"shape": {"dimensions": [str(size) for size in dimensions]} if dimensions else {}}


def _connector(name: str, **content: Any) -> dict[str, Any]:
    return {"pythonClassName": f"{_FEATURES}.{name}", **content}


def _info(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": "receipts",
        "version": f"{manifest.version}.0.0",
        "description": _DESCRIPTION,
        "fileFormat": "tfrecord",
        "splits": [_split(name, split) for name, split in manifest.splits.items()],
    }


def _split(name: str, split: Split) -> dict[str, Any]:
    # Shards go by their numbers. One that this version does not have is of length 0, which
    # TensorFlow Datasets skips: of the shards 0 and 3 with 5 and 4 records, lengths are 5 0 0 4.
    records = {shard_number(shard.name): shard.records for shard in split.shards}
    return {
        "name": name,
        "filepathTemplate": TFDS_SHARD_TEMPLATE,
        "shardLengths": [str(records.get(at, 0)) for at in range(max(records, default=-1) + 1)],
        "numBytes": str(sum(shard.size_bytes for shard in split.shards)),
    }


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=1, sort_keys=True) + "\n").encode()
