"""A proxy that is itself the HTTPS servers it is asked for: TensorFlow's gs:// knows no others."""

import datetime
import socket
import ssl
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

HOSTS = ("www.googleapis.com", "storage.googleapis.com")


class TlsProxy(ThreadingTCPServer):
    """Sends the GET requests that come through its tunnels, one by one, to a server without TLS.

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
        assert _head(self.request).startswith(b"CONNECT ")
        self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with (
            self.server.context.wrap_socket(self.request, server_side=True) as client,
            socket.create_connection(self.server.server_of_all) as server,
        ):
            server.sendall(_head(client))
            while data := server.recv(1 << 16):
                client.sendall(data)


def _head(connection: socket.socket) -> bytes:
    """A request without a body."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = connection.recv(1 << 16)
        assert more, f"a request ends after {head!r}"
        head += more
    return head


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
