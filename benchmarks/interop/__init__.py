"""Dataset directories, read by other libraries: `make interop`.

A module is a reader, which runs in an environment that has its library and writes rows to a file.
`expected` has the records that it should read, and `python -m benchmarks.interop` prints all rows.
"""
