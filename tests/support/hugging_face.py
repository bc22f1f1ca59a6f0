"""A stand-in of the Hugging Face Hub: its addresses, with repositories in memory."""

import base64
import hashlib
import http.server
import json
import re

from support.remote import Quiet, served

_API = re.compile(
    r"/api/(?:models/)?((?:datasets/)?[^/]+/[^/]+)"
    r"(?:/(revision|preupload|commit)/([^/?]+))?$"
)
_FILE = re.compile(r"/((?:datasets/)?[^/]+/[^/]+)/resolve/([^/]+)/(.+)$")


class _Handler(Quiet, http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _give(self, status, body=b"", headers=()):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        # Nothing answers over an old connection when the server is down.
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status, code):
        self._give(status, {"error": code}, {"X-Error-Code": code})

    def do_GET(self):
        path = self.path.partition("?")[0]
        server = self.server
        api, file = _API.match(path), _FILE.match(path)
        repository = (api or file)[1] if api or file else None
        if repository in server.gated:
            return self._error(403, "GatedRepo")
        if repository not in server.repositories:
            return self._error(404, "RepoNotFound")
        files = server.repositories[repository]
        sha = commit(self.server, repository)
        revision = api[3] if api else file[2]
        if revision not in (None, "main", sha):
            return self._error(404, "RevisionNotFound")
        if api:
            siblings = [{"rfilename": name} for name in files]
            private = repository in server.private
            fields = {"id": repository, "sha": sha, "private": private}
            return self._give(200, {**fields, "siblings": siblings})
        if file[3] not in files:
            return self._error(404, "EntryNotFound")
        digest = hashlib.sha256(files[file[3]]).hexdigest()
        self._give(200, files[file[3]], {"ETag": f'"{digest}"', "X-Repo-Commit": sha})

    do_HEAD = do_GET

    def do_POST(self):
        length = self.headers.get("Content-Length")
        text = self.rfile.read(int(length)) if length else self._chunks()
        server, path = self.server, self.path.partition("?")[0]
        if not self.headers.get("authorization"):
            return self._give(401, {"error": "Invalid username or password."})
        if path == "/api/validate-yaml":  # of the card
            return self._give(200, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            asked = json.loads(text)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            server.repositories[name] = {}
            if asked.get("private") or asked.get("visibility") == "private":
                server.private.add(name)
            return self._give(200, {"url": f"{server.address}/{name}", "id": name})
        repository, call = _API.match(path).group(1, 2)
        if call == "preupload":
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False}
                for f in json.loads(text)["files"]
            ]
            return self._give(200, {"files": files})
        if server.refused:
            return self._give(server.refused, {"error": "No."})
        for line in map(json.loads, text.splitlines()):
            if line["key"] == "deletedFile":
                del server.repositories[repository][line["value"]["path"]]
            if line["key"] == "file":
                content = base64.b64decode(line["value"]["content"])
                server.repositories[repository][line["value"]["path"]] = content
        sha = commit(self.server, repository)
        url = f"{server.address}/{repository}/commit/{sha}"
        self._give(200, {"commitUrl": url, "commitOid": sha, "success": True})

    def _chunks(self):
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data


def commit(server, repository):
    """The name of the newest commit of a repository."""
    files = sorted(server.repositories[repository].items())
    return hashlib.sha1(repr(files).encode()).hexdigest()


def hub_server():
    """The server: `repositories` {name: {path: bytes}}, sets `gated` and `private`.

    The name of a dataset is `datasets/owner/name`.

    `refused` is the status that a commit is answered with, if any.
    """
    empty = {"repositories": {}, "gated": set(), "private": set()}
    return served(_Handler, **empty, refused=None)
