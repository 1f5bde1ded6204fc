"""Headless Chromium over its DevTools pipe, with the standard library alone: opens pages, sees what they log and fetch."""

import base64
import json
import os
import select
import shutil
import signal
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_program():
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One process for many pages. Use as a context manager."""

    def __init__(self, program, timeout=60):
        self.timeout = timeout
        self._profile = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        # the pipe is where the protocol wants it: commands on descriptor 3, answers on 4
        high = [os.dup2(fd, number, inheritable=False) for fd, number in ((reads, 100), (writes, 101))]
        quiet = os.open(os.devnull, os.O_RDWR)
        arguments = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
                     "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={self._profile.name}",
                     "--remote-debugging-pipe", "about:blank"]
        actions = [(os.POSIX_SPAWN_DUP2, high[0], 3), (os.POSIX_SPAWN_DUP2, high[1], 4),
                   *((os.POSIX_SPAWN_DUP2, quiet, fd) for fd in (0, 1, 2))]
        self._pid = os.posix_spawn(program, arguments, dict(os.environ), file_actions=actions, setpgroup=0)
        for fd in (reads, writes, quiet, *high):
            os.close(fd)
        self._buffer = b""
        self._number = 0
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for fd in (self._to, self._from):
            os.close(fd)
        try:
            os.killpg(self._pid, signal.SIGKILL)  # the group of the process that was started above, no other
        except ProcessLookupError:
            pass
        os.waitpid(self._pid, 0)
        self._profile.cleanup()

    def send(self, method, session=None, **parameters):
        """The result of one command; events that come meanwhile are kept."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def wait_for(self, method, session):
        deadline = time.monotonic() + self.timeout
        while True:
            for event in self.events:
                if event["method"] == method and event.get("sessionId") == session:
                    return event
            self._receive(deadline)

    def _receive(self, deadline):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(self._from, 1 << 16) if ready else b""
            if not chunk:
                raise TimeoutError("the browser does not answer")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        answer = json.loads(message)
        if "method" in answer:
            self.events.append(answer)
        return answer

    def open(self, path, width=1280, height=900, scheme="light"):
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        page.send("Page.navigate", url=path.absolute().as_uri())
        self.wait_for("Page.loadEventFired", session)
        return page


class Page:
    def __init__(self, browser, target, session):
        self._browser, self._target, self._session = browser, target, session

    def send(self, method, **parameters):
        return self._browser.send(method, self._session, **parameters)

    def close(self):
        self._browser.send("Target.closeTarget", targetId=self._target)

    def evaluate(self, expression):
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def _events(self, method):
        return [event["params"] for event in self._browser.events
                if event["method"] == method and event.get("sessionId") == self._session]

    def complaints(self):
        """What a developer would see in red, and dialogs."""
        entries = [event["entry"]["text"] for event in self._events("Log.entryAdded")]
        thrown = [event["exceptionDetails"]["text"] for event in self._events("Runtime.exceptionThrown")]
        logged = [event["type"] for event in self._events("Runtime.consoleAPICalled")]
        dialogs = [event["message"] for event in self._events("Page.javascriptDialogOpening")]
        return entries + thrown + logged + dialogs

    def requests(self):
        return [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    def screenshot(self, path):
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1}
        data = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))
