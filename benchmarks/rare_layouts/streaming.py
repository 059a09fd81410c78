"""MosaicML Streaming's stratified batches, where it can make them."""

import tempfile
from collections.abc import Sequence
from pathlib import Path


def refusal(records: Sequence[int], batch_size: int) -> str:
    """Asks Streaming for stratified batches of layouts with so many records each.

    Every batch holds the same number of records of a stream, at least one, so the rarest layout
    decides how small a batch may be and how long an epoch is.

    Returns:
      Streaming's refusal; "" if it makes the batches.

    Raises:
      ImportError: Streaming is not installed.
    """
    import streaming

    with tempfile.TemporaryDirectory(prefix="streaming-") as folder:
        streams = []
        for layout, count in enumerate(records):
            path = str(Path(folder, str(layout)))
            with streaming.MDSWriter(out=path, columns={"label": "int"}) as writer:
                for _ in range(count):
                    writer.write({"label": layout})
            streams.append(streaming.Stream(local=path))
        dataset = streaming.StreamingDataset(
            streams=streams, batch_size=batch_size, shuffle=True, batching_method="stratified"
        )
        try:
            next(iter(dataset))
        except ValueError as error:
            return str(error)
    return ""
