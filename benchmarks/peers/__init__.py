"""The same receipts through other input pipelines: `python -m benchmarks.peers`.

A peer is a module with two functions, which run in processes of their own:

- `prepare(data_dir, folder)` writes the records of a dataset directory's train split in the format
  that the peer recommends, stored bytes as they are;
- `batches(folder, output, *, workers)` reads them back, in the order that the peer recommends for
  training: an iterator without an end over (images, labels).
"""
