"""A schema registry in the test's own process: Confluent's API over HTTP, with faults on demand.

The same suite runs against it and against a real registry.
"""

import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["FakeSchemaRegistry", "fake_schema_registry"]


@dataclass(slots=True)
class FakeSchemaRegistry:
    """What the server holds, and how it misbehaves.

    url: base address.  requests: `METHOD /path` of every request, in order.  logins: their Authorization headers.
    faults: HTTP statuses that the next requests get, first come first served; 0 drops the connection.
    hidden: schema ids that are not found until they have been asked for this often.
    """

    url: str = ""
    requests: list[str] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    hidden: dict[int, int] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)
    _schemas: list[dict[str, Any]] = field(default_factory=list)
    _subjects: dict[str, list[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, body: dict[str, Any], login: str | None) -> tuple[int, dict[str, Any]]:
        """(status, body) of one request; status 0 means that the connection is dropped."""
        with self._lock:
            self.requests.append(f"{method} {path}")
            self.logins.append(login)
            if self.faults:
                status = self.faults.pop(0)
                return status, {"error_code": status, "message": "a fault that the test asked for"}
            for pattern, verb, handler in _ROUTES:
                if verb == method and (match := re.fullmatch(pattern, path)):
                    answer: tuple[int, dict[str, Any]] = handler(self, *match.groups(), body)
                    return answer
            return _not_found(404, "HTTP 404 Not Found")  # as Confluent's answers outside its API

    def _by_id(self, schema_id: str, _body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        number = int(schema_id)
        if self.hidden.get(number, 0) > 0:
            self.hidden[number] -= 1
            return _not_found(40403, "Schema not found")
        if not 1 <= number <= len(self._schemas):
            return _not_found(40403, "Schema not found")
        return 200, self._schemas[number - 1]

    def _version(self, subject: str, version: str, _body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        ids = self._subjects.get(subject)
        if not ids:
            return _not_found(40401, f"Subject '{subject}' not found.")
        number = len(ids) if version == "latest" else int(version)
        if not 1 <= number <= len(ids):
            return _not_found(40402, f"Version {version} not found.")
        schema_id = ids[number - 1]
        return 200, {"subject": subject, "version": number, "id": schema_id, **self._schemas[schema_id - 1]}

    def _register(self, subject: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if problems := self._problems(subject, body["schema"]):
            return 409, {"error_code": 409, "message": f"Schema being registered is incompatible: {problems}"}
        schema_id = self._ids.get(body["schema"])
        if schema_id is None:
            self._schemas.append(body)
            schema_id = self._ids[body["schema"]] = len(self._schemas)
        ids = self._subjects.setdefault(subject, [])
        if schema_id not in ids:
            ids.append(schema_id)
        return 200, {"id": schema_id}

    def _look_up(self, subject: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        schema_id = self._ids.get(body["schema"], 0)
        if schema_id not in self._subjects.get(subject, []):
            return _not_found(40403, "Schema not found")
        return 200, {"id": schema_id, "subject": subject, "schema": body["schema"]}

    def _compatible(self, subject: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if subject not in self._subjects:
            return _not_found(40401, f"Subject '{subject}' not found.")
        problems = self._problems(subject, body["schema"])
        return 200, {"is_compatible": not problems, "messages": problems}

    def _problems(self, subject: str, text: str) -> list[str]:
        """BACKWARD, as far as the top level goes: a field that the last version lacks needs a default."""
        ids = self._subjects.get(subject)
        if not ids:
            return []
        old, new = json.loads(self._schemas[ids[-1] - 1]["schema"]), json.loads(text)
        known = {entry["name"] for entry in old["fields"]}
        return [
            f"READER_FIELD_MISSING_DEFAULT_VALUE: {entry['name']}"
            for entry in new["fields"]
            if entry["name"] not in known and "default" not in entry
        ]


_ROUTES: tuple[tuple[str, str, Any], ...] = (
    (r"/schemas/ids/(\d+)", "GET", FakeSchemaRegistry._by_id),
    (r"/subjects/([^/]+)/versions/(latest|\d+)", "GET", FakeSchemaRegistry._version),
    (r"/subjects/([^/]+)/versions", "POST", FakeSchemaRegistry._register),
    (r"/subjects/([^/]+)", "POST", FakeSchemaRegistry._look_up),
    (r"/compatibility/subjects/([^/]+)/versions/latest", "POST", FakeSchemaRegistry._compatible),
)


def _not_found(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return 404, {"error_code": code, "message": message}


@contextmanager
def fake_schema_registry(*, tls: ssl.SSLContext | None = None) -> Iterator[FakeSchemaRegistry]:
    """A fake registry on a free port of this machine, for the length of a `with` block; over HTTPS with `tls`."""
    registry = FakeSchemaRegistry()

    class Request(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: dict[str, Any]) -> None:
            path = self.path.partition("?")[0]
            status, answer = registry.answer(self.command, path, body, self.headers["Authorization"])
            if not status:
                self.close_connection = True
                return
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_args: object) -> None:
            """Quiet."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_args: object) -> None:
            """Quiet: a handshake that fails is what a test asked for, and the client tells of all else."""

    with Server(("127.0.0.1", 0), Request) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        registry.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
