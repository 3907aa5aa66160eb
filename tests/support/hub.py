"""A stand-in of the hub's HTTP API: one repository in memory, what uploads and downloads need of it."""

from __future__ import annotations

import base64
import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub(ThreadingHTTPServer):
    """Takes uploads of `files` and gives them back; with ``refuses`` it answers 403."""

    def __init__(self, *, refuses=False):
        super().__init__(("127.0.0.1", 0), _Requests)
        self.files, self.requests, self.refuses = {}, [], refuses

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class _Requests(BaseHTTPRequestHandler):
    server: Hub

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.path, self.headers.get("Authorization")))
        if self.server.refuses:
            return self.answer({"error": "You may not do that"}, 403)
        if self.path == "/api/repos/create":
            repository = json.loads(body)
            name = f"{repository['organization']}/{repository['name']}"
            return self.answer({"url": f"{self.server.address}/{name}"})
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            files = json.loads(body)["files"]
            return self.answer(
                {
                    "files": [
                        {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files
                    ]
                }
            )
        if "/commit/" in self.path:
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.server.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            sha = "1" * 40
            return self.answer(
                {"commitUrl": f"{self.server.address}/me/shapes/commit/{sha}", "commitOid": sha}
            )
        return self.answer({"error": self.path}, 404)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.requests.append((self.path, self.headers.get("Authorization")))
        if "/tree/" in self.path:
            return self.answer(
                [
                    {
                        "type": "file",
                        "path": name,
                        "size": len(content),
                        "oid": hashlib.sha1(content).hexdigest(),
                    }
                    for name, content in self.server.files.items()
                ]
            )
        if self.path.startswith("/api/models/"):
            siblings = [{"rfilename": name} for name in self.server.files]
            return self.answer({"id": "me/shapes", "sha": "1" * 40, "siblings": siblings, "tags": []})
        content = self.server.files.get(self.path.split("?")[0].rsplit("/", 1)[-1])
        if content is None:
            return self.answer({"error": "Entry not found"}, 404)
        return self.send(content, 200, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"'})

    def answer(self, value, code=200):
        self.send(json.dumps(value).encode(), code, {"Content-Type": "application/json"})

    def send(self, content, code, headers):
        self.send_response(code)
        for name, value in {"Content-Length": len(content), "X-Repo-Commit": "1" * 40, **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
