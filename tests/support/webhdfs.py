"""A WebHDFS server over a local folder: the operations that a build needs, as Hadoop 3 does them.

https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

PREFIX = "/webhdfs/v1"
DATANODE = "namenoderpcaddress"  # the parameter that tells a datanode whom it serves


class RemoteError(Exception):
    """Answer of Hadoop to a request that failed."""

    def __init__(self, status: int, exception: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.exception = exception


@dataclass(kw_only=True)
class WebHdfs:
    """A running server.

    Attributes:
      root: the folder that is `/` of the file system.
      port: where it listens, on 127.0.0.1.
      knows_rename_options: False is how HttpFS behaves, which gives no fileId either.
      refused: path to the status and the exception of every answer about it.
    """

    root: Path
    port: int = 0
    knows_rename_options: bool = True
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)


@contextmanager
def serve(root: Path) -> Iterator[WebHdfs]:
    """Serves a folder until the block ends."""
    hdfs = WebHdfs(root=root)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, hdfs)) as server:
        hdfs.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield hdfs
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One request: `op` is a method's name, what it returns the answer."""

    protocol_version = "HTTP/1.1"  # keeps connections
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer in one piece

    def __init__(self, hdfs: WebHdfs, *request: Any) -> None:
        self.hdfs = hdfs
        super().__init__(*request)  # answers it

    def do_GET(self) -> None:
        self._answer({"OPEN", "LISTSTATUS", "GETFILESTATUS", "GETFILECHECKSUM"})

    def do_PUT(self) -> None:
        self._answer({"CREATE", "MKDIRS", "RENAME"})

    def do_DELETE(self) -> None:
        self._answer({"DELETE"})

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, operations: set[str]) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        self.name = unquote(url.path.removeprefix(PREFIX))
        self.place = self._local(self.name)
        body = self._body()
        operation = self.query.get("op", "").upper()
        try:
            if self.name in self.hdfs.refused:
                raise RemoteError(*self.hdfs.refused[self.name], self.name)
            if operation not in operations:
                raise RemoteError(400, "IllegalArgumentException", f"Invalid op: {operation}")
            status, headers, content = getattr(self, f"_{operation.lower()}")(body)
        except RemoteError as error:
            remote = {"exception": error.exception, "message": str(error)}
            status, headers, content = _json({"RemoteException": remote}, error.status)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _open(self, _: bytes) -> "Answer":
        self._need(self.place.is_file())
        offset, size = int(self.query.get("offset", 0)), self.place.stat().st_size
        if not 0 <= offset <= size:
            raise RemoteError(403, "IOException", f"Offset={offset} out of the range [0, {size})")
        if DATANODE not in self.query:
            return self._redirected()
        with self.place.open("rb") as file:
            file.seek(offset)
            return 200, {}, file.read(int(self.query.get("length", -1)))

    def _liststatus(self, _: bytes) -> "Answer":
        self._need(self.place.exists())
        if self.place.is_file():
            found = [self._status(self.place, "")]
        else:
            found = [self._status(path, path.name) for path in sorted(self.place.iterdir())]
        return _json({"FileStatuses": {"FileStatus": found}})

    def _getfilestatus(self, _: bytes) -> "Answer":
        self._need(self.place.exists())
        return _json({"FileStatus": self._status(self.place, "")})

    def _getfilechecksum(self, _: bytes) -> "Answer":
        self._need(self.place.is_file())
        if DATANODE not in self.query:
            return self._redirected()
        checksum = {"algorithm": "MD5-of-0MD5-of-512CRC32C", "bytes": "00" * 28, "length": 28}
        return _json({"FileChecksum": checksum})

    def _create(self, body: bytes) -> "Answer":
        if DATANODE not in self.query:
            return self._redirected()
        overwrite = self.query.get("overwrite", "false").lower() == "true"
        if self.place.is_dir() or (self.place.exists() and not overwrite):
            raise RemoteError(403, "FileAlreadyExistsException", f"{self.name} already exists")
        self.place.parent.mkdir(parents=True, exist_ok=True)
        self.place.write_bytes(body)
        return 201, {"Location": f"hdfs://localhost{quote(self.name)}"}, b""

    def _mkdirs(self, _: bytes) -> "Answer":
        self.place.mkdir(parents=True, exist_ok=True)
        return _json({"boolean": True})

    def _rename(self, _: bytes) -> "Answer":
        target = self._local(self.query["destination"])
        if self.query.get("renameoptions") == "OVERWRITE" and self.hdfs.knows_rename_options:
            self._need(self.place.exists() and target.parent.is_dir())
            self.place.replace(target)
            return 200, {"Content-Type": "application/octet-stream"}, b""
        if target.is_dir():
            target /= self.place.name
        possible = self.place.exists() and target.parent.is_dir() and not target.exists()
        if possible:
            self.place.rename(target)
        return _json({"boolean": possible})

    def _delete(self, _: bytes) -> "Answer":
        existed = self.place.exists()
        if self.place.is_dir():
            recursive = self.query.get("recursive", "false").lower() == "true"
            if not recursive and any(self.place.iterdir()):
                raise RemoteError(403, "PathIsNotEmptyDirectoryException", f"{self.name} has files")
            shutil.rmtree(self.place)
        else:
            self.place.unlink(missing_ok=True)
        return _json({"boolean": existed})

    def _local(self, name: str) -> Path:
        return self.hdfs.root / name.lstrip("/")

    def _need(self, there: bool) -> None:
        if not there:
            raise RemoteError(404, "FileNotFoundException", f"File {self.name} does not exist.")

    def _redirected(self) -> "Answer":
        host, port = self.server.server_address[:2]
        return 307, {"Location": f"http://{host}:{port}{self.path}&{DATANODE}=localhost"}, b""

    def _status(self, path: Path, suffix: str) -> dict[str, Any]:
        found, is_file = path.stat(), path.is_file()
        return {
            "pathSuffix": suffix,
            "type": "FILE" if is_file else "DIRECTORY",
            "length": found.st_size if is_file else 0,
            **({"fileId": found.st_ino} if self.hdfs.knows_rename_options else {}),
            "modificationTime": int(found.st_mtime * 1000),
        }


Answer = tuple[int, dict[str, str], bytes]  # status, headers, content


def _json(value: Any, status: int = 200) -> Answer:
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()
