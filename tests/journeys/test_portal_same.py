"""Every action of the portal shows the same as command line, curl and Python: a walk over its sources. What changes something on the
controller names the same route in a block for the shell, in the same module; and each command in such a block is one that there is."""
import os
import re
import subprocess

from tests.lab.command import ACEQUIA

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "portal/src")
# Logins are no actions on the cluster; saved.ts holds the calls of its pages; an upload and an editor write with PUT, shown on the page of files.
NOT_ACTIONS = ("api/session.ts", "api/saved.ts", "api/client.ts", "pages/login.tsx", "pages/device.tsx", "files/upload.ts", "files/data.ts")
# Calls that ask and change nothing.
QUESTIONS = ("/v1/when",)
SAVED = {"keepView": "/v1/views/", "dropView": "/v1/views/", "keepTemplate": "/v1/templates/", "dropTemplate": "/v1/templates/", "dropDraft": "/v1/drafts/"}


def modules():
    for folder, _, names in os.walk(SOURCES):
        for name in names:
            path = os.path.join(folder, name)
            short = os.path.relpath(path, SOURCES)
            if name.endswith((".ts", ".tsx")) and short not in NOT_ACTIONS:
                with open(path, encoding="utf-8") as f:
                    yield short, f.read()


def shape(route):
    """Names and numbers in a route as one sign: /v1/projects/{name} and /v1/projects/${name} are the same."""
    return re.sub(r"\$?\{[^}]*\}", "*", route)


def test_every_action_shows_the_same():
    missing = []
    for short, text in modules():
        shown = {shape(m) for m in re.findall(r"path: (?:address\()?[`']([^`']+)[`']", text)} | {shape(m) for m in re.findall(r"const path = (?:address\()?[`']([^`']+)[`']", text)}
        done = {shape(m) for m in re.findall(r"send\('(?:POST|PUT|DELETE)', (?:address\()?[`']([^`']+)[`']", text)}
        # Addresses that a function of the module makes: servicePath(s, '/tokens') is shown as it is asked.
        made = r"(\w+Path\([^)]*\)|pathOf\([^)]*\))"
        shown |= set(re.findall(rf"path: {made}", text))
        done |= set(re.findall(rf"send\('(?:POST|PUT|DELETE)', {made}", text))
        done |= {prefix for call, prefix in SAVED.items() if f"await {call}(" in text}
        for route in sorted(done - set(QUESTIONS)):
            if not any(s == route or (route.endswith("/") and s.startswith(route)) for s in shown) and not (short == "compose/draft.ts"):
                missing.append(f"{short}: {route} is not shown as a command; shown: {sorted(shown)}")
    assert not missing, "\n".join(missing)


def test_every_command_shown_exists():
    verbs = subprocess.run([ACEQUIA, "help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^\s+([a-z][a-z-]+)", verbs, re.M))
    found = set()
    for short, text in modules():
        for verb in re.findall(r"cli: `acequia ([a-z][a-z-]*)", text) + re.findall(r"cli: 'acequia ([a-z][a-z-]*)", text):
            found.add(verb)
            assert verb in known, f"{short}: there is no acequia {verb}"
    assert len(found) > 12, found
