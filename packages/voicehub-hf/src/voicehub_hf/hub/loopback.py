"""A hub on loopback for tests of uploads: the few requests of one, and failures on demand."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlparse

#: Of the owner of every token.
OWNER = "tester"


@dataclass
class Commit:
    """One commit as it arrived: message, and contents by path."""

    message: str
    files: dict[str, bytes]


@dataclass
class Hub:
    """What the server was sent, and what it does next.

    Attributes:
        url: for ``HF_ENDPOINT``.
        repositories: name to whether it is private.
        commits: as they arrived.
        fail: statuses to answer commits with before one works.
        gate: commits wait until it is set; it is at first.
        arrived: set once a commit has come in.
    """

    url: str = ""
    created: list[dict[str, Any]] = field(default_factory=list)
    repositories: dict[str, bool] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    fail: list[int] = field(default_factory=list)
    authorizations: set[str] = field(default_factory=set)
    stored: dict[str, bytes] = field(default_factory=dict)
    concurrent: int = 0
    most_concurrent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    gate: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    """What ``HfApi`` asks for: create, look up, upload modes, large files, commit."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing on standard error."""

    def answer(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self) -> None:
        name = urlparse(self.path).path.removeprefix("/api/models/")
        if name not in self.hub.repositories:
            self.answer({"error": "Repository not found"}, 404)
            return
        self.answer({"id": name, "modelId": name, "private": self.hub.repositories[name]})

    def do_PUT(self) -> None:
        data = self.body()
        self.hub.stored[hashlib.sha256(data).hexdigest()] = data
        self.answer({})

    def do_POST(self) -> None:
        path, data, hub = urlparse(self.path).path, self.body(), self.hub
        hub.authorizations.add(self.headers.get("Authorization", ""))
        if path == "/api/repos/create":
            self.create(json.loads(data))
        elif "/preupload/" in path:
            files = json.loads(data)["files"]
            self.answer({"files": [self.mode(file["path"]) for file in files]})
        elif path.endswith("/info/lfs/objects/batch"):
            self.answer({"objects": [self.place(item) for item in json.loads(data)["objects"]]})
        elif "/commit/" in path:
            self.commit(data, path.removeprefix("/api/models/").split("/commit/")[0])
        else:
            self.answer({"error": f"no such place: {path}"}, 404)

    def create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted.get('organization') or OWNER}/{wanted['name']}"
        self.hub.created.append(wanted)
        exists = name in self.hub.repositories
        if not exists:
            private = wanted.get("private", wanted.get("visibility") == "private")
            self.hub.repositories[name] = bool(private)
        self.answer({"url": f"{self.hub.url}/{name}"}, 409 if exists else 200)

    def mode(self, path: str) -> dict[str, Any]:
        large = path.endswith(".safetensors")
        return {
            "path": path,
            "uploadMode": "lfs" if large else "regular",
            "shouldIgnore": False,
            "oid": None,
        }

    def place(self, item: dict[str, Any]) -> dict[str, Any]:
        href = f"{self.hub.url}/store/{item['oid']}"
        return {**item, "actions": {"upload": {"href": href, "header": {}}}}

    def commit(self, data: bytes, name: str) -> None:
        hub = self.hub
        with hub.lock:
            hub.concurrent += 1
            hub.most_concurrent = max(hub.most_concurrent, hub.concurrent)
            status = hub.fail.pop(0) if hub.fail else 200
        hub.arrived.set()
        hub.gate.wait(timeout=60)
        with hub.lock:
            hub.concurrent -= 1
        if status != 200:
            # As careless as a server can be.
            said = f"not well, for one with {self.headers.get('Authorization')}"
            self.answer({"error": said}, status)
            return
        header, *operations = (json.loads(line) for line in data.splitlines())
        files = {}
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                files[value["path"]] = hub.stored[value["oid"]]
        hub.commits.append(Commit(header["value"]["summary"], files))
        self.answer({"commitUrl": f"{hub.url}/{name}/commit/{'1' * 40}", "commitOid": "1" * 40})


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """Run a hub in a thread until the block is left."""
    state = Hub()
    handler = type("BoundHandler", (_Handler,), {"hub": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    state.gate.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        state.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
