"""A way to the database that can freeze: what is sent goes nowhere, and nobody hangs up."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Proxy:
    """Forwards connections to one server until it is frozen; a context manager.

    Attributes:
        dsn: the way through the proxy.
        frozen_calls: released once for every piece that a client sent in vain.
    """

    def __init__(self, dsn: str) -> None:
        self._target = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
        self._server = socket.create_server(("127.0.0.1", 0))
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=self._server.getsockname()[1], sslmode="disable")
        self.frozen_calls = threading.Semaphore(0)
        self._frozen = threading.Event()
        self._sockets: list[socket.socket] = [self._server]

    def freeze(self) -> None:
        """From now on nothing passes."""
        self._frozen.set()

    def __enter__(self) -> Self:
        self._thread(self._accept)
        return self

    def __exit__(self, *_: Any) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            server = self._connect()
            self._sockets += [client, server]
            self._thread(self._forward, client, server)
            self._thread(self._forward, server, client)

    def _connect(self) -> socket.socket:
        host, port = self._target.get("host", "localhost"), self._target.get("port", "5432")
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection((host, int(port)))

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        while True:
            try:
                data = source.recv(65536)
                if self._frozen.is_set() and data:
                    self.frozen_calls.release()
                    continue
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
            except OSError:
                return

    @staticmethod
    def _thread(function: Any, *arguments: Any) -> None:
        threading.Thread(target=function, args=arguments, daemon=True).start()
