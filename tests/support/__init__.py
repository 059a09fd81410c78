"""Support code of the tests: processes, servers, datasets, receipts."""
