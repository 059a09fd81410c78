"""A small Azure Blob Storage server: the requests of Beam's and TensorFlow's clients, in memory."""

import re
import threading
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

ACCOUNT = "devstoreaccount1"
KEY = (  # the one that everybody knows, of servers like this
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
PAGE = 10  # so that listings have several


@dataclass(kw_only=True)
class Blob:
    """A blob, and the copy that made it: where from while it is pending, and how it went."""

    data: bytes
    copy_source: tuple[str, str] | None = None
    copy_status: str = ""
    etag: int = field(default_factory=count().__next__)
    last_modified: str = field(default_factory=lambda: formatdate(usegmt=True))

    def properties(self) -> dict[str, str]:
        copied = {"x-ms-copy-id": "1", "x-ms-copy-status": self.copy_status}
        always = {
            "ETag": f'"{self.etag}"',
            "Last-Modified": self.last_modified,
            "x-ms-creation-time": self.last_modified,
            "x-ms-blob-type": "BlockBlob",
            "x-ms-server-encrypted": "true",
        }
        return always | (copied if self.copy_status else {})


class BlobServer(ThreadingHTTPServer):
    """One account at http://127.0.0.1:PORT/devstoreaccount1.

    Attributes:
      containers: container to name to blob.
      sent_bytes: what bodies of answers held, of all requests.
      expired: whether shared access signatures have expired.
      last_name: blob with the first request for which they expire, None for never.
      slow_copies: whether a copy is pending until somebody asks for it, as between two servers of
        the real store. It then copies what the source holds, or fails where that is gone.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.containers: dict[str, dict[str, Blob]] = {}
        self.blocks: dict[tuple[str, str, str], bytes] = {}
        self.sent_bytes = 0
        self.last_name: str | None = None
        self.expired = False
        self.slow_copies = False
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: BlobServer

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_HEAD(self) -> None:
        self._answer(self._get)

    def do_PUT(self) -> None:
        self._answer(self._put)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def log_message(self, *args: object) -> None:
        """Says nothing."""

    def _answer(self, method) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        account, self.container, self.name = _parts(url.path)
        with self.server.lock:
            refusal = self._refusal()
            if refusal:
                status, headers, body = _error(403, "AuthenticationFailed", refusal)
            elif account != ACCOUNT:
                status, headers, body = _error(400, "InvalidUri")
            elif self.query.get("restype") == "container" and self.command == "PUT":
                self.server.containers.setdefault(self.container, {})
                status, headers, body = 201, {}, b""
            elif self.container not in self.server.containers:
                status, headers, body = _error(404, "ContainerNotFound")
            else:
                self.blobs = self.server.containers[self.container]
                status, headers, body = method()
            if self.command != "HEAD":
                self.server.sent_bytes += len(body)
            elif status >= 400:
                del headers["Content-Type"]  # there is no body to be of a type
                body = b""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refusal(self) -> str:
        """Says why a request is not authenticated, "" if it is."""
        if "sig" not in self.query:
            key = f"SharedKey {ACCOUNT}:"
            return "" if self.headers.get("Authorization", "").startswith(key) else "no key"
        expired = self.server.expired
        self.server.expired |= self.name == self.server.last_name
        return "Signature not valid in the specified time frame" if expired else ""

    def _get(self) -> tuple[int, dict[str, str], bytes]:
        if self.query.get("comp") == "list":
            return self._list()
        if (blob := self.blobs.get(self.name)) is None:
            return _error(404, "BlobNotFound")
        if blob.copy_source:
            blob = self._finish_copy(blob.copy_source)
        data = blob.data
        headers = blob.properties() | {"Accept-Ranges": "bytes"}
        asked = self.headers.get("x-ms-range") or self.headers.get("Range")
        if self.command == "HEAD" or not asked:
            return 200, headers | {"Content-Length": str(len(data))}, data
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
        assert found, asked
        start, end = int(found[1]), min(int(found[2] or len(data)), len(data) - 1)
        if start >= len(data):
            return _error(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
        return 206, headers, data[start : end + 1]

    def _list(self) -> tuple[int, dict[str, str], bytes]:
        prefix, marker = self.query.get("prefix", ""), self.query.get("marker", "")
        names = {name for name in self.blobs if name.startswith(prefix)}
        if delimiter := self.query.get("delimiter", ""):
            names = {_up_to(name, delimiter, len(prefix)) for name in names}
        names = sorted(name for name in names if name >= marker)
        entries = []
        for name in names[:PAGE]:
            if delimiter and name.endswith(delimiter) and name != prefix:
                entries.append(f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>")
                continue
            blob = self.blobs[name]
            properties = {
                "Last-Modified": blob.last_modified,
                "Etag": str(blob.etag),
                "Content-Length": len(blob.data),
                "BlobType": "BlockBlob",
            }
            fields = "".join(f"<{key}>{value}</{key}>" for key, value in properties.items())
            entries.append(
                f"<Blob><Name>{escape(name)}</Name><Properties>{fields}</Properties></Blob>"
            )
        rest = escape(names[PAGE]) if len(names) > PAGE else ""
        body = (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName='
            f'"{self.container}"><Prefix>{escape(prefix)}</Prefix><Blobs>{"".join(entries)}</Blobs>'
            f"<NextMarker>{rest}</NextMarker></EnumerationResults>"
        )
        return 200, {"Content-Type": "application/xml"}, body.encode()

    def _put(self) -> tuple[int, dict[str, str], bytes]:
        match self.query.get("comp"):
            case "block":
                place = (self.container, self.name, self.query["blockid"])
                self.server.blocks[place] = self.body
                return 201, {}, b""
            case "blocklist":
                ids = [each.text or "" for each in ElementTree.fromstring(self.body)]
                places = [(self.container, self.name, each) for each in ids]
                self.body = b"".join(self.server.blocks.pop(place) for place in places)
            case _ if source := self.headers.get("x-ms-copy-source"):
                return self._copy(source)
            case _:
                assert self.headers["x-ms-blob-type"] == "BlockBlob", self.headers
        self.blobs[self.name] = Blob(data=self.body)
        return 201, self.blobs[self.name].properties(), b""

    def _copy(self, source: str) -> tuple[int, dict[str, str], bytes]:
        url = urlsplit(source)
        account, container, name = _parts(url.path)
        if url.netloc != f"127.0.0.1:{self.server.server_port}" or account != ACCOUNT:
            return _error(404, "CannotVerifyCopySource")
        if name not in self.server.containers.get(container, {}):
            return _error(404, "BlobNotFound")
        blob = Blob(data=b"", copy_source=(container, name), copy_status="pending")
        self.blobs[self.name] = blob
        if not self.server.slow_copies:
            blob = self._finish_copy((container, name))
        return 202, blob.properties(), b""

    def _finish_copy(self, source: tuple[str, str]) -> Blob:
        origin = self.server.containers[source[0]].get(source[1])
        blob = Blob(data=origin.data, copy_status="success") if origin else None
        self.blobs[self.name] = blob or Blob(data=b"", copy_status="failed")
        return self.blobs[self.name]

    def _delete(self) -> tuple[int, dict[str, str], bytes]:
        if self.name not in self.blobs:
            return _error(404, "BlobNotFound")
        del self.blobs[self.name]
        return 202, {}, b""


def _up_to(name: str, delimiter: str, start: int) -> str:
    """A name, cut behind the first delimiter from `start` on."""
    end = name.find(delimiter, start)
    return name if end < 0 else name[: end + len(delimiter)]


def _parts(path: str) -> tuple[str, str, str]:
    """Account, container and blob of a URL's path."""
    account, _, rest = path.removeprefix("/").partition("/")
    container, _, blob = rest.partition("/")
    return account, container, unquote(blob)


def _error(status: int, code: str, detail: str = "") -> tuple[int, dict[str, str], bytes]:
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code>'
    body += f"<Message>{code}</Message>"
    if detail:
        body += f"<AuthenticationErrorDetail>{detail}</AuthenticationErrorDetail>"
    body += "</Error>"
    return status, {"x-ms-error-code": code, "Content-Type": "application/xml"}, body.encode()
