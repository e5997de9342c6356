"""A headless Chromium and the little of its DevTools protocol that the tests need."""

import json
import shutil
import subprocess
import time
import urllib.request
from contextlib import contextmanager

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)
PATIENCE = 20.0


class Page:
    """One open page, with all it logged and all it asked the network for."""

    def __init__(self, socket):
        self._socket = socket
        self._number = 0
        self.problems = []
        self.requests = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Send one command and wait for its answer."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message):
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(parameters["exceptionDetails"])
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning"):
                self.problems.append(parameters["args"])
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.problems.append(parameters["entry"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])

    def evaluate(self, expression):
        """The value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path):
        """Load a file and wait until its charts are drawn."""
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("document.documentElement?.dataset.ready === 'true'")

    def wait_for(self, condition):
        """Wait until an expression holds."""
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, (condition, self.problems)
            time.sleep(0.05)

    def slide(self, element, value):
        """Move a slider as a reader would."""
        self.evaluate(
            f"(() => {{ const s = document.getElementById({json.dumps(element)});"
            f" s.value = {value}; s.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"
        )

    def text(self, selector):
        """The text of the first element that a selector finds."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")

    def styled(self, selector, name):
        """A computed style of the first element that a selector finds."""
        found = f"document.querySelector({json.dumps(selector)})"
        return self.evaluate(f"getComputedStyle({found}).getPropertyValue({json.dumps(name)})")


@contextmanager
def browser_page(profile):
    """A page of a browser of its own, which ends with the block."""
    import websocket

    process = subprocess.Popen(  # noqa: S603
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = profile / "DevToolsActivePort"
        deadline = time.monotonic() + PATIENCE
        while not (address.exists() and address.read_text().count("\n")):
            assert process.poll() is None, "Chromium ended at once"
            assert time.monotonic() < deadline, "Chromium did not start"
            time.sleep(0.05)
        port = int(address.read_text().splitlines()[0])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            target = next(t for t in json.load(answer) if t["type"] == "page")
        socket = websocket.create_connection(target["webSocketDebuggerUrl"], timeout=PATIENCE)
        try:
            yield Page(socket)
        finally:
            socket.close()
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)
