"""Chromium without a window, asked over a pipe in the words of its DevTools."""

import json
import os
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_chromium():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A page in a browser of its own; use it in a `with` statement.

    Args:
        url: string.
        folder: path, for what the browser writes.
        flags: strings, of the browser.
    """

    def __init__(self, url, folder, flags=("--disable-gpu",)):
        self._url, self._folder, self._count = url, folder, 0
        self._flags = flags

    def __enter__(self):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        shell = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        flags = ["--headless=new", "--no-sandbox", *self._flags]
        flags += ["--disable-dev-shm-usage", "--remote-debugging-pipe"]
        flags += ["--no-first-run", "--disable-background-networking"]
        flags += [f"--user-data-dir={self._folder}"]
        self._browser = subprocess.Popen(
            ["bash", "-c", shell, find_chromium(), *flags],
            pass_fds=(to_read, to_write),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._answers = os.fdopen(self._read, "rb")
        self._session = None
        target = self.call("Target.createTarget", url=self._url)["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.until(
            "document.readyState == 'complete' && location.href != 'about:blank'"
        )
        return self

    def __exit__(self, *_):
        self._browser.kill()
        self._browser.wait()
        self._answers.close()
        os.close(self._write)

    def call(self, method, **arguments):
        """The result of a method of the DevTools."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            pass  # an event
        assert "error" not in answer, answer
        return answer["result"]

    def value(self, script):
        """The value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script):
        """Waits until an expression is true."""
        deadline = time.monotonic() + 120
        while not self.value(script):
            assert time.monotonic() < deadline, script
            time.sleep(0.05)

    def drop(self, *paths):
        """Drops files into the middle of the page, as a hand does."""
        data = {"items": [], "files": list(map(str, paths)), "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=200, y=200, data=data)

    def _next(self):
        message = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser ended"
            message += byte
        return json.loads(message)
