"""Text lines of a receipt in the order in which people read them, whatever order its boxes have.

OCR engines give boxes by words, by lines or by regions, some with the head of a receipt last.
"""

from collections.abc import Iterable

from beam_jobs.sources.row import Box


def reading_lines(boxes: Iterable[Box]) -> list[str]:
    """Returns the lines of an upright receipt from its top, each with its texts from the left.

    Boxes are of one line if the middle of each lies within the height of the other. Sides may be in
    pixels or in fractions of the image.
    """
    lines: list[list[Box]] = []
    # By the texts, too, so that boxes at one place have one order.
    for box in sorted(boxes, key=lambda box: (box[1] + box[3], box)):
        if lines and _are_beside(lines[-1][0], box):
            lines[-1].append(box)
        else:
            lines.append([box])
    return [" ".join(box[4] for box in sorted(line)) for line in lines]


def _are_beside(first: Box, box: Box) -> bool:
    """Returns whether the middle of each box, of which the second is lower, is beside the other."""
    return (box[1] + box[3]) / 2 < first[3] and (first[1] + first[3]) / 2 > box[1]
