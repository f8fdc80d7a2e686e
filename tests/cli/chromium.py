"""Headless Chromium over its debugging pipe: one process opens many pages, at any width. (--window-size has a least width of 500.)"""
import base64
import json
import os
import select
import shutil
import subprocess


def find():
    return next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)


class Browser:
    """with Browser(folder) as browser: browser.open(path, 800); browser.evaluate("document.title")"""

    def __init__(self, folder, seconds=60):
        to_read, self.to = os.pipe()
        self.of, to_write = os.pipe()
        command = [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
                   "--user-data-dir=%s" % (folder / "profile")]
        # Chromium reads descriptor 3 and writes 4.
        shell = ["bash", "-c", 'exec 3<&%d 4>&%d %d<&- %d>&-; exec "$@"' % (to_read, to_write, to_read, to_write)] if min(to_read, to_write) > 4 else \
            ["bash", "-c", 'exec 13<&%d 14>&%d; exec 3<&13 4>&14 13<&- 14>&-; exec "$@"' % (to_read, to_write)]
        self.process = subprocess.Popen(shell + ["bash"] + command, pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.number, self.buffer, self.session, self.events = 0, b"", None, []
        self.seconds = seconds  # of one answer
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.session = None
        try:
            self.call("Browser.close")  # with all its processes, which write into the folder
        except (OSError, AssertionError):
            self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.of)

    def message(self):
        while b"\0" not in self.buffer:
            assert select.select([self.of], [], [], self.seconds)[0], "no answer of Chromium in %.0f s" % self.seconds
            got = os.read(self.of, 1 << 20)
            assert got, "Chromium ended"
            self.buffer += got
        one, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **parameters):
        self.number += 1
        sent = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            sent["sessionId"] = self.session
        data = json.dumps(sent).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            got = self.message()
            if got.get("id") == self.number:
                assert "error" not in got, (method, got)
                return got["result"]
            self.events.append(got)

    def wait(self, event):
        while not any(one["method"] == event for one in self.events):
            self.events.append(self.message())

    def window(self, width, height=900, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, path, width=1280, height=900, dark=False):
        """Fails on an exception of the page's script."""
        self.window(width, height, dark)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.wait("Page.loadEventFired")
        failed = [one for one in self.events if one["method"] == "Runtime.exceptionThrown"]
        assert not failed, (path.name, failed)

    def requests(self):
        """Addresses that the page asked for, itself included."""
        return [one["params"]["request"]["url"] for one in self.events if one["method"] == "Network.requestWillBeSent"]

    def evaluate(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def key(self, key, code, number, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number, text=text if kind == "keyDown" else "")

    def picture(self, scale=1):
        """A PNG of the window."""
        size = self.call("Page.getLayoutMetrics")["cssVisualViewport"]
        more = {"clip": {"x": 0, "y": 0, "width": size["clientWidth"], "height": size["clientHeight"], "scale": scale}}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"])

    def printed(self):
        """A PDF of A4 pages."""
        return base64.b64decode(self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])
