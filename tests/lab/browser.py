"""Debian's Chromium without a window, driven over its DevTools pipe: nothing but the standard library.

    with Browser() as b:
        page = b.page(width=1440, height=900)
        page.goto("http://…"); page.wait("document.querySelector('h1')"); page.click("button")
        assert page.problems == []"""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from .proc import LabError, end_child, kill_trees, processes_naming

PROGRAM = shutil.which("chromium")
ANSWER_S = 60


class Browser:
    """One browser with a profile of its own, which goes when it does."""

    def __init__(self):
        self.profile = self.child = None
        self.number, self.buffer, self.pages, self.answers = 0, b"", {}, {}

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="acequia-browser-")
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def pipes():  # the protocol wants them as 3 and 4
            one, two = fcntl.fcntl(to_read, fcntl.F_DUPFD, 10), fcntl.fcntl(to_write, fcntl.F_DUPFD, 10)
            os.dup2(one, 3)
            os.dup2(two, 4)

        self.child = subprocess.Popen(  # pylint: disable=subprocess-popen-preexec-fn
            [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        return self

    def __exit__(self, *_):
        end_child(self.child)
        os.close(self.to)
        os.close(self.back)
        kill_trees(processes_naming(self.profile))  # its helpers write to the profile while it is being removed
        shutil.rmtree(self.profile, ignore_errors=True)

    def page(self, width=1440, height=900, dark=False, language="en"):
        """A new tab, with its own cookies and storage."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        self.pages[session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.call("Emulation.setLocaleOverride", locale=language)
        page.call("Network.setUserAgentOverride", userAgent="acequia-test", acceptLanguage=language)
        return page

    def call(self, method, session=None, **parameters):
        """Sends a command and answers its result."""
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + ANSWER_S
        while number not in self.answers:
            self._read(until)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise LabError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _read(self, until):
        ready, _, _ = select.select([self.back], [], [], max(0, until - time.monotonic()))
        data = os.read(self.back, 1 << 20) if ready else b""
        if not data:
            raise LabError("the browser does not answer")
        *messages, self.buffer = (self.buffer + data).split(b"\0")
        for m in map(json.loads, messages):
            if "id" in m:
                self.answers[m["id"]] = m
            elif m.get("sessionId") in self.pages:
                self.pages[m["sessionId"]].event(m["method"], m["params"])


class Page:
    """A tab. `problems` gathers console errors, exceptions and violations of the page's policy."""

    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.problems = []

    def call(self, method, **parameters):
        return self.browser.call(method, session=self.session, **parameters)

    def event(self, method, p):
        if method == "Runtime.exceptionThrown":
            details = p["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.problems.append(f"{p['entry']['text']} {p['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in p["args"]))

    def goto(self, url, seconds=30):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'", seconds)

    def evaluate(self, expression):
        """The value of an expression in the page; promises are waited for."""
        r = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in r:
            raise LabError(r["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        return r["result"].get("value")

    def wait(self, expression, seconds=30):
        """Waits until the expression is true."""
        until = time.monotonic() + seconds
        while True:
            try:
                value = self.evaluate(f"!!({expression})")
            except LabError:
                value = None  # the page is just being replaced
            if value:
                return
            if time.monotonic() > until:
                raise LabError(f"not true within {seconds} s: {expression}; the page shows: {self.text()[:600]}; {self.problems}")
            time.sleep(0.1)

    def text(self):
        return self.evaluate("document.body.innerText") or ""

    def wait_text(self, text, seconds=30):
        self.wait(f"document.body.innerText.includes({json.dumps(text)})", seconds)

    def click(self, what):
        """Clicks on the element of this selector, or on the button or link with this text."""
        found = ("(() => { const w = %s; let e = null; try { e = document.querySelector(w); } catch {} "
                 "e ??= [...document.querySelectorAll('dialog button, dialog a, button, a, [role=tab], summary')]"
                 ".find(x => x.innerText.trim() === w && x.offsetParent !== null && !x.disabled); return e; })()") % json.dumps(what)
        self.wait(f"{found} != null")
        self.evaluate(f"{found}.click()")

    def press(self, key, modifiers=0):
        """A key by its name, as Enter or ArrowDown, or a letter."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, " ": 32}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        common = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key.upper()) if key.isalnum() and len(key) == 1 else 0), "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        """Into the field that has the focus, at once."""
        self.call("Input.insertText", text=text)

    def keys(self, text):
        """Key by key."""
        for key in text:
            self.press(key)

    def screenshot(self, path, whole=False):
        """`whole`: the page to its end, not only what is in view."""
        more = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}}
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"]))
