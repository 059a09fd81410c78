"""The feature table of a receipt record, declared once.

The encoder (`schemas.example`), the TensorFlow parser, the tensorflow-metadata schema and the
manifest are all derived from it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, cast

Dtype = Literal["bytes", "string", "int64", "float32"]
LabelType = Literal["string", "int", "float", "category"]

LABEL_TYPES: tuple[LabelType, ...] = ("string", "int", "float", "category")
LAYOUT = "layout"


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One feature of a record.

    Attributes:
      name: key in the `tf.train.Example`.
      dtype: "bytes" is opaque, "string" is UTF-8; both are `tf.string` for a reader.
      ragged: False for exactly one value a record, True for any number of values.
      doc: what the value means, with its unit.
    """

    name: str
    dtype: Dtype
    ragged: bool = False
    doc: str


@dataclass(frozen=True, kw_only=True)
class Label:
    """A label that the user declares for every receipt, stored as `receipt/<name>`.

    A `category` also gets a dense id (`receipt/<name>_id`), a vocabulary in the manifest and a
    column in the record index, so that batches can be balanced over it.
    """

    name: str
    type: LabelType

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(
                f"label name {self.name!r} is not allowed: use lower-case letters, digits and "
                "underscores, starting with a letter"
            )
        if self.name in _RESERVED or self.name.endswith("_id"):
            raise ValueError(
                f"label name {self.name!r} is taken by the library "
                f"(reserved: {', '.join(sorted(_RESERVED))} and names ending in _id): rename it"
            )
        if self.type not in LABEL_TYPES:
            raise ValueError(
                f"label type {self.type!r} of {self.name!r} is unknown: "
                f"choose one of {', '.join(LABEL_TYPES)}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `name:type`, as in `total:float`.

        Raises:
          ValueError: the text has another form, or its name or type is not allowed.
        """
        name, separator, type_ = text.partition(":")
        if not separator:
            raise ValueError(
                f"label {text!r} has no type: write NAME:TYPE, TYPE one of {', '.join(LABEL_TYPES)}"
            )
        return cls(name=name, type=cast(LabelType, type_))  # checked in __post_init__


# Names of features, of columns of the index, and of what `pipeline.config.InputConfig.features`
# may name beside them.
_RESERVED = frozenset(
    {
        LAYOUT,
        "group",
        "image",
        "label",
        "weight",
        "boxes",
        "text",
        "id",
        "step",
        "row",
        "seed",
        "offset",
        "length",
        "height",
        "width",
        "channels",
    }
)
_LABEL_DTYPES: dict[str, Dtype] = {
    "string": "string",
    "category": "string",
    "int": "int64",
    "float": "float32",
}

# The texts are in schema.pbtxt of every dataset: another wording would change its bytes.
_IMAGE_FEATURES = (
    Feature(name="image/encoded", dtype="bytes", doc="JPEG file, or raw pixels in row-major HWC"),
    Feature(name="image/format", dtype="string", doc="'jpeg' or 'raw'"),
    Feature(name="image/height", dtype="int64", doc="pixels"),
    Feature(name="image/width", dtype="int64", doc="pixels"),
    Feature(name="image/channels", dtype="int64", doc="1 (greyscale) or 3 (RGB)"),
    Feature(name="image/source_id", dtype="string", doc="the receipt's id"),
    Feature(name="image/key/sha256", dtype="string", doc="hex SHA-256 of image/encoded"),
    Feature(
        name="image/key/pixels",
        dtype="string",
        doc="hex XXH3 (128 bits) of the source image's size and pixels",
    ),
    *(
        Feature(
            name=f"image/object/bbox/{side}",
            dtype="float32",
            ragged=True,
            doc=f"{side} of each text line, 0 to 1 of the stored image's {extent}",
        )
        for side, extent in (
            ("xmin", "width"),
            ("ymin", "height"),
            ("xmax", "width"),
            ("ymax", "height"),
        )
    ),
    Feature(
        name="image/object/text", dtype="string", ragged=True, doc="transcript of each text line"
    ),
    Feature(name="receipt/group", dtype="string", doc="shop, user or device; '' if none is known"),
)


def labels_features(labels: Sequence[Label], *, makes_layouts: bool) -> tuple[Feature, ...]:
    """Features of a record that say what its receipt is, as the inputs do.

    They are group, labels and boxes, but no ids, and not the layout where the build made it.
    """
    made = made_features(labels, makes_layouts=makes_layouts)
    return tuple(
        feature
        for feature in receipt_features(labels)
        if feature.name.startswith(("image/object/", "receipt/")) and feature not in made
    )


def made_features(labels: Sequence[Label], *, makes_layouts: bool) -> tuple[Feature, ...]:
    """Features of a record that follow from all receipts together: ids, and layouts if made."""
    names = {id_feature(name) for name in categories(labels)}
    if makes_layouts:
        names.add(f"receipt/{LAYOUT}")
    return tuple(feature for feature in receipt_features(labels) if feature.name in names)


def categories(labels: Sequence[Label]) -> tuple[str, ...]:
    """Names of the labels that have a vocabulary, the layout first."""
    return (LAYOUT, *(label.name for label in labels if label.type == "category"))


def id_feature(category: str) -> str:
    """Name of the feature that holds a category's position in its vocabulary."""
    return f"receipt/{category}_id"


def receipt_features(labels: Sequence[Label] = ()) -> tuple[Feature, ...]:
    """The features of a record whose receipts carry the given labels.

    Raises:
      ValueError: two labels have one name.
    """
    names = [label.name for label in labels]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"label {name!r} is declared {names.count(name)} times: keep one")
    features = list(_IMAGE_FEATURES)
    for name, type_ in [(LAYOUT, "category"), *((label.name, label.type) for label in labels)]:
        features.append(
            Feature(name=f"receipt/{name}", dtype=_LABEL_DTYPES[type_], doc=f"{type_} label")
        )
        if type_ == "category":
            features.append(
                Feature(
                    name=id_feature(name),
                    dtype="int64",
                    doc=f"position of receipt/{name} in the manifest's vocabulary",
                )
            )
    return tuple(features)
