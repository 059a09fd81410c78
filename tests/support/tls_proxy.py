"""A proxy that is itself the HTTPS servers it is asked for: TensorFlow's gs:// knows no others."""

import datetime
import re
import socket
import ssl
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

HOSTS = ("www.googleapis.com", "storage.googleapis.com")


class TlsProxy(ThreadingTCPServer):
    """Sends the requests that come through its tunnels, one each, to a server without TLS.

    Attributes:
      certificate: file of the certificate that clients must trust.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path, server_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.certificate = _certificate(folder / "certificate.pem")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate)
        self.server_of_all = ("127.0.0.1", server_port)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseRequestHandler):
    server: TlsProxy

    def handle(self) -> None:
        assert _request(self.request).startswith(b"CONNECT ")
        self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            client = self.server.context.wrap_socket(self.request, server_side=True)
        except OSError:
            return  # the client was killed
        with client, socket.create_connection(self.server.server_of_all) as server:
            # The server makes addresses of the host that it is asked for: those that it keeps are
            # for clients without this proxy, those in headers for this client.
            own = b"%s:%d" % (self.server.server_of_all[0].encode(), self.server.server_of_all[1])
            server.sendall(
                re.sub(rb"\r\nHost: \S+", b"\r\nHost: " + own, _request(client), count=1)
            )
            head, end, rest = _received(server).partition(b"\r\n\r\n")
            location = b"\r\nLocation: https://" + HOSTS[0].encode()
            client.sendall(head.replace(b"\r\nLocation: http://" + own, location) + end + rest)


def _request(connection: socket.socket) -> bytes:
    """Receives a request with its body, and leaves out how the body was cut into chunks.

    TensorFlow says "chunked" and a length at once.
    """
    with connection.makefile("rb") as file:
        lines = [file.readline()]
        while lines[-1] not in (b"\r\n", b""):
            lines.append(file.readline())
        names = {line.partition(b":")[0].lower(): line.partition(b":")[2].strip() for line in lines}
        if names.get(b"expect") == b"100-continue":
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b""
        if names.get(b"transfer-encoding") == b"chunked":
            while size := int(file.readline(), 16):
                body += file.read(size)
                file.readline()
        else:
            body = file.read(int(names.get(b"content-length", 0)))
    drop = (b"transfer-encoding:", b"content-length:", b"expect:")
    head = [line for line in lines[:-1] if not line.lower().startswith(drop)]
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    return b"".join([*head, length, body])


def _received(connection: socket.socket) -> bytes:
    """Receives all that comes until the other side closes."""
    parts = []
    while data := connection.recv(1 << 16):
        parts.append(data)
    return b"".join(parts)


def _certificate(path: Path) -> Path:
    """A key and its own certificate for all hosts."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tillroll's tests")])
    hosts = x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(hosts, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(encoding, *private) + certificate.public_bytes(encoding))
    return path
