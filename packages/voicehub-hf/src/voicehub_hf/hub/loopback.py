"""A hub on loopback for tests: the few requests of one, and failures on demand.

It takes uploads, and offers downloads of what is put into ``offered``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlparse

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
        offered: files by name, of each repository that can be downloaded.
        downloads: how often each file's content was sent.
        unavailable: answer every look-up with status 503.
        told: answers to look-ups, by path, that are given as they stand.
        asked: paths that were looked up or fetched.
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
    offered: dict[str, dict[str, bytes]] = field(default_factory=dict)
    downloads: Counter[str] = field(default_factory=Counter)
    unavailable: bool = False
    told: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def head(self, name: str) -> str:
        """The commit that an offered repository is at: a hash of its content."""
        digest = hashlib.sha1()
        for path, content in sorted(self.offered[name].items()):
            digest.update(f"{path}\0".encode() + hashlib.sha256(content).digest())
        return digest.hexdigest()


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
        if self.command != "HEAD":
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

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        if self.hub.unavailable:
            self.answer({"error": "out of order"}, 503)
            return
        with self.hub.lock:
            self.hub.asked.append(path)
        if path in self.hub.told:
            self.answer(self.hub.told[path])
            return
        for name in self.hub.offered:
            if path.startswith((f"/api/models/{name}", f"/{name}/resolve/")):
                self.offer(name, path)
                return
        name = path.removeprefix("/api/models/")
        if name not in self.hub.repositories:
            self.answer({"error": "Repository not found"}, 404)
            return
        self.answer({"id": name, "modelId": name, "private": self.hub.repositories[name]})

    def offer(self, name: str, path: str) -> None:
        """Answer for a repository that can be downloaded: what it holds, or one of its files."""
        hub, commit = self.hub, self.hub.head(name)
        files = hub.offered[name]
        if "/tree/" in path:
            tree = [
                {"type": "file", "path": file, "size": len(content), "oid": "0" * 40}
                for file, content in sorted(files.items())
            ]
            self.answer(tree)
            return
        if path.startswith("/api/"):
            revision = path.partition("/revision/")[2] or "main"
            siblings = [{"rfilename": n, "size": len(files[n])} for n in sorted(files)]
            known = {"id": name, "modelId": name, "private": False, "sha": commit}
            if revision in ("main", commit):
                self.answer({**known, "siblings": siblings})
            else:
                self.refuse("RevisionNotFound", f"Invalid rev id: {revision}")
            return
        revision, _, file = path.partition("/resolve/")[2].partition("/")
        if revision not in ("main", commit) or file not in files:
            kind = "EntryNotFound" if revision in ("main", commit) else "RevisionNotFound"
            self.refuse(kind, f"no {file} at {revision}")
            return
        content = files[file]
        self.send_response(200)
        self.send_header("X-Repo-Commit", commit)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            with hub.lock:
                hub.downloads[file] += 1
            self.wfile.write(content)

    def refuse(self, kind: str, text: str) -> None:
        """A clear no, in the hub's own words."""
        self.send_response(404)
        self.send_header("X-Error-Code", kind)
        self.send_header("X-Error-Message", text)
        self.send_header("Content-Length", "0")
        self.end_headers()

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
