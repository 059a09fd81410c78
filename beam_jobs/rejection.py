"""Reasons for which an input is not in the dataset, or has no prediction.

Codes are stable: scripts may rely on them.
"""

from enum import StrEnum

from beam_jobs.shown import MESSAGE_CHARACTERS, shortened


class Reason(StrEnum):
    """Reason codes of the quarantine."""

    BAD_ROW = "bad_row"  # the table's row can't be read
    IMAGE_MISSING = "image_missing"  # the row names no image
    IMAGE_OUTSIDE = "image_outside"  # the row names an image outside the folder of the images
    ID_MISSING = "id_missing"  # the row has an id column but no id
    DUPLICATE_ID = "duplicate_id"  # another row has the same id
    LAYOUT_MISSING = "layout_missing"
    LABEL_MISSING = "label_missing"
    LABEL_TYPE = "label_type"  # a label is not of its declared type
    BOXES_INVALID = "boxes_invalid"  # the boxes can't be read
    BOX_OUTSIDE = "box_outside"  # a box has no area inside the image
    FILE_MISSING = "file_missing"
    UNREADABLE = "unreadable"  # the file system refused to read the file
    FILE_EMPTY = "file_empty"
    FILE_TOO_LARGE = "file_too_large"
    NOT_AN_IMAGE = "not_an_image"  # no known image format
    UNSUPPORTED_FORMAT = "unsupported_format"  # an image, of a format that is not accepted
    TRUNCATED = "truncated"  # the file ends early
    CORRUPT = "corrupt"  # the decoder failed
    TOO_MANY_PIXELS = "too_many_pixels"
    TOO_MANY_SCANS = "too_many_scans"  # a JPEG file that visits its pixels again and again
    TOO_MUCH_MEMORY = "too_much_memory"  # preparing it takes more than is allowed
    TOO_SLOW = "too_slow"  # preparing it takes more time than is allowed
    KILLED_WORKER = "killed_worker"  # preparing it ended two processes that did nothing else
    MANY_PAGES = "many_pages"  # a TIFF file of several pages
    TOO_SMALL = "too_small"
    RECORD_DAMAGED = "record_damaged"  # a record of a dataset does not match its checksum
    MODEL_FAILED = "model_failed"  # the model can't predict the image
    NOT_FINITE = "not_finite"  # a prediction is NaN or infinite
    FAILED = "failed"  # preparing it raised an error that is not foreseen: please report it


class RejectionError(Exception):
    """An input goes to the quarantine instead of the dataset or the predictions."""

    def __init__(self, reason: Reason, message: str) -> None:
        message = shortened(message, MESSAGE_CHARACTERS)
        super().__init__(reason, message)
        self.reason = reason
        self.message = message
