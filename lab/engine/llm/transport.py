"""A connection that can be broken off from another thread, at every stage of a request.

Closing a response from outside does not wake a thread that is blocked in `recv`; shutting its socket down
does. So the network layer below the HTTP client keeps a handle on the one socket in use.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import select
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import httpcore2
import httpx2
from httpcore2 import NetworkBackend, NetworkStream, SyncBackend

Address = tuple[Any, ...]
LONGER_THAN = "the answer is longer than"
Resolved = tuple[socket.AddressFamily, socket.SocketKind, int, str, Address]


class AbortableBackend(NetworkBackend):
    """Opens sockets and can break the newest one off, while it connects, shakes hands, writes or reads.

    One request at a time: the socket of an earlier connection is forgotten when a new one is opened. A
    request that is answered with more than `max_bytes` fails, whatever its status.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._received = 0
        self._plain = SyncBackend()
        # Guards _socket and _aborted: abort() comes from the thread that sets the stop signal.
        self._lock = threading.Lock()
        self._aborted = threading.Event()
        self._socket: socket.socket | None = None
        self.patience: float | None = None

    def arm(self) -> None:
        """Allow connections again after an earlier `abort`, and reads as long as the request allows."""
        with self._lock:
            self._aborted.clear()
        self.patience = None
        self._received = 0

    def count(self, received: int) -> None:
        self._received += received
        if self._received > self._max_bytes:
            raise httpcore2.ReadError(f"{LONGER_THAN} {self._max_bytes:,} bytes")

    def hurry(self, seconds: float) -> None:
        """From now on no read waits longer than this."""
        self.patience = seconds

    def abort(self) -> None:
        """Break off whatever is going on; the thread inside it gets a connection error at once."""
        with self._lock:
            self._aborted.set()
            held = self._socket
            if held is not None:
                # On a socket that is still connecting, shutdown may report "not connected" and wake it
                # anyway.
                with contextlib.suppress(OSError):
                    held.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        with self._lock:
            held, self._socket = self._socket, None
        if held is not None:
            held.close()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> NetworkStream:
        ends = time.monotonic() + (timeout if timeout is not None else 60.0)
        addresses = self._resolve(host, port, ends)
        error: OSError = OSError(f"no address for {host}")
        for position, resolved in enumerate(addresses):
            share = (ends - time.monotonic()) / (len(addresses) - position)
            try:
                return _Stream(self._connect(resolved, max(share, 0.1)), self)
            except OSError as failed:
                error = failed
                if self._aborted.is_set():
                    break
        kind = httpcore2.ConnectTimeout if isinstance(error, TimeoutError) else httpcore2.ConnectError
        raise kind(str(error)) from error

    def _connect(self, resolved: Resolved, seconds: float) -> socket.socket:
        family, kind, protocol, _, address = resolved
        opened = socket.socket(family, kind, protocol)
        try:
            self._hold(opened)
            opened.settimeout(seconds)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.connect(address)
        except BaseException:
            opened.close()
            raise
        if self._aborted.is_set():
            opened.close()
            raise ConnectionAbortedError("broken off")
        return opened

    def _hold(self, opened: socket.socket) -> None:
        # A duplicate of the descriptor: it stays valid when TLS takes the original over.
        handle = opened.dup()
        with self._lock:
            aborted = self._aborted.is_set()
            previous, self._socket = self._socket, handle
        if previous is not None:
            previous.close()
        if aborted:
            raise ConnectionAbortedError("broken off")

    def _resolve(self, host: str, port: int, ends: float) -> list[Resolved]:
        """Look the name up in a thread of its own: the system's resolver cannot be interrupted."""
        if _is_address(host):
            return _getaddrinfo(host, port)
        answer: list[list[Resolved] | OSError] = []
        done = threading.Event()

        def look_up() -> None:
            try:
                answer.append(_getaddrinfo(host, port))
            except OSError as failed:
                answer.append(failed)
            done.set()

        threading.Thread(target=look_up, daemon=True, name="resolve").start()
        while not done.wait(0.05):
            if self._aborted.is_set():
                raise httpcore2.ConnectError("broken off")
            if time.monotonic() > ends:
                raise httpcore2.ConnectTimeout(f"looking up {host} took too long")
        found = answer[0]
        if isinstance(found, OSError):
            raise httpcore2.ConnectError(f"{host}: {found.strerror or found}") from found
        return found

    def sleep(self, seconds: float) -> None:
        self._aborted.wait(seconds)


class _Stream(NetworkStream):
    """A TCP or TLS stream; what `httpcore2` has, but closing it also ends the duplicate's connection."""

    def __init__(self, opened: socket.socket, backend: AbortableBackend) -> None:
        self._opened = opened
        self._backend = backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        patience = self._backend.patience
        if patience is not None:
            timeout = patience if timeout is None else min(timeout, patience)
        try:
            self._opened.settimeout(timeout)
            data = self._opened.recv(max_bytes)
        except TimeoutError as failed:
            raise httpcore2.ReadTimeout(str(failed)) from failed
        except OSError as failed:
            raise httpcore2.ReadError(str(failed)) from failed
        self._backend.count(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            self._opened.settimeout(timeout)
            self._opened.sendall(buffer)
        except TimeoutError as failed:
            raise httpcore2.WriteTimeout(str(failed)) from failed
        except OSError as failed:
            raise httpcore2.WriteError(str(failed)) from failed

    def close(self) -> None:
        # The duplicate keeps the descriptor open, so the connection has to be ended explicitly.
        with contextlib.suppress(OSError):
            self._opened.shutdown(socket.SHUT_RDWR)
        self._opened.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> NetworkStream:
        try:
            self._opened.settimeout(timeout)
            secured = ssl_context.wrap_socket(self._opened, server_hostname=server_hostname)
            return _Stream(secured, self._backend)
        except TimeoutError as failed:
            self.close()
            raise httpcore2.ConnectTimeout(str(failed)) from failed
        except OSError as failed:
            self.close()
            raise httpcore2.ConnectError(str(failed)) from failed

    def get_extra_info(self, info: str) -> Any:
        if info == "socket":
            return self._opened
        if info == "ssl_object":
            return self._opened if isinstance(self._opened, ssl.SSLSocket) else None
        if info == "is_readable":
            return _is_readable(self._opened)
        return None


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Made once in a process: reading the certificates takes 20 ms."""
    return httpx2.create_ssl_context()


def untrusted(text: str) -> str:
    """What to do about an error that says the server's certificate is not trusted; "" for any other."""
    if "CERTIFICATE_VERIFY_FAILED" not in text:
        return ""
    return (
        "; if the server is yours, write the path of its certificate, or of the authority that signed it "
        "(PEM), into SSL_CERT_FILE, export it and start the lab again"
    )


class AbortableTransport(httpx2.HTTPTransport):
    """HTTP/1.1 over `AbortableBackend`, through the environment's proxy except for loopback addresses."""

    def __init__(self, base_url: str, backend: AbortableBackend) -> None:
        proxy = proxy_for(base_url)
        # The certificates are 3 MB of memory; plain HTTP needs none of them.
        encrypted = "https" in {urlsplit(base_url).scheme, urlsplit(proxy or "").scheme}
        context = tls_context() if encrypted else None
        # The parent class has no argument for the network layer; its pool has.
        if proxy is None:
            self._pool = httpcore2.ConnectionPool(
                ssl_context=context, max_connections=2, keepalive_expiry=60.0, network_backend=backend
            )
        else:
            address, login = _proxy_parts(proxy)
            self._pool = httpcore2.HTTPProxy(
                address,
                proxy_auth=login,
                ssl_context=context,
                max_connections=2,
                keepalive_expiry=60.0,
                network_backend=backend,
            )


def proxy_for(url: str) -> str | None:
    """The environment's HTTP proxy for this URL; None for loopback and what `no_proxy` names."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy and proxy.startswith(("http://", "https://")) else None


def _proxy_parts(proxy: str) -> tuple[str, tuple[str, str] | None]:
    """The proxy's address without its login, and the login."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return proxy, None
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}", (unquote(parts.username), unquote(parts.password or ""))


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _getaddrinfo(host: str, port: int) -> list[Resolved]:
    return cast(list[Resolved], socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _is_readable(opened: socket.socket) -> bool:
    """Whether an idle connection has something to read, which on HTTP means that the server closed it."""
    if opened.fileno() < 0:
        return True
    poller = select.poll()
    poller.register(opened.fileno(), select.POLLIN)
    return bool(poller.poll(0))
