"""Files of a version with the inputs that are not in its splits.

`quarantine/` holds TFRecord files of examples with the features below, bytes included, and beside
each a file of JSON lines with everything but the bytes. `duplicates/` holds JSON lines that name,
for each duplicate, the record that was kept, and for each near-duplicate the other receipt.
"""

from schemas.receipt import Feature

UNNAMED_ROW = "row:"  # begins the id of a row without one; a hash of its text follows

REJECTED_FEATURES = (
    Feature(name="id", dtype="string", doc="the input's id"),
    Feature(name="uri", dtype="string", doc="where its image lies, '' if it names none"),
    Feature(name="reason", dtype="string", doc="stable reason code"),
    Feature(name="message", dtype="string", doc="what is wrong, for people"),
    Feature(name="source", dtype="string", doc="the row that named it, with its labels"),
    Feature(name="bytes", dtype="bytes", doc="the image file as read, empty if it could not be"),
)
