"""Storages for tests: fsspec's own in memory, and a web server on this machine."""

import contextlib
import functools
import http.server
import pathlib
import threading

import fsspec


def memory_files():
    """All files of `memory://`: dict from path to bytes."""
    files = fsspec.filesystem("memory")
    return {path: files.cat_file(path) for path in sorted(files.find("/"))}


def put_folder(folder, address):
    """Copies a folder of this machine to `memory://...`."""
    files = fsspec.filesystem("memory")
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            files.pipe_file(f"{address}/{name}", path.read_bytes())


class Quiet:
    """For handlers: writes no line of a log for each request."""

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(handler, **attributes):
    """A server on this machine with its `address`, and attributes for its handler."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.address = f"http://127.0.0.1:{server.server_port}"
        vars(server).update(attributes)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(Quiet, http.server.SimpleHTTPRequestHandler):
    """Gives files, lists no folder, and fails as often as it is told to."""

    def do_HEAD(self):
        if self.server.head_status is None:
            super().do_HEAD()
        else:
            self.send_error(self.server.head_status)

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.server.failures:
            self.server.failures -= 1
            self.send_error(503)
        elif self.path in self.server.answers:
            status, headers, body = self.server.answers[self.path]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        else:
            super().do_GET()

    def list_directory(self, path):
        self.send_error(403)


def web_server(folder):
    """Serves a folder; its `address`, `failures` still to come, and paths `asked`.

    `answers` are sent in the place of files: status, headers and body, by the path.
    With a `head_status` it refuses to send headers alone.
    """
    handler = functools.partial(_Handler, directory=str(folder))
    return served(handler, failures=0, asked=[], answers={}, head_status=None)
