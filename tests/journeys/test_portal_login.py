"""Logging in to the portal three ways in Debian's Chromium: an own user, a user of the system (PAM), a provider of OpenID Connect; and what
follows from it: the command line on another machine, accounts, sessions, tokens. Skipped where the portal is not built."""
import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile

import pytest

from tests.journeys.test_login import SAME, ask, place
from tests.journeys.test_oidc import section
from tests.journeys.test_portal import PACK, no_problems
from tests.lab import browser
from tests.lab.cluster import Cluster
from tests.lab.oidc import Provider
from tests.lab.proc import end_child, free_ports, wait_until

pytestmark = [
    pytest.mark.skipif(not browser.PROGRAM, reason="chromium is not installed (tools/setup --test)"),
    pytest.mark.skipif(not os.path.exists(PACK), reason="the portal is not built (tools/portal build)"),
]
SHOTS = os.environ.get("ACEQUIA_SHOTS")  # a folder for screenshots
PASSWORD = "correct horse battery"


@contextlib.contextmanager
def system_user():
    """A user of this machine with a password, and a service of PAM that asks for it; None where that needs root."""
    if os.geteuid() != 0 or not shutil.which("useradd"):
        yield None, ""
        return
    name = f"aqt{os.getpid()}"
    service = f"/etc/pam.d/acequia-{name}"
    subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", name], check=True)
    try:
        subprocess.run(["chpasswd"], input=f"{name}:{PASSWORD}\n", text=True, check=True)
        with open(service, "w", encoding="ascii") as f:
            f.write("auth required pam_unix.so\naccount required pam_unix.so\n")
        yield name, f"[login]\npam_service = acequia-{name}\n"
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(service)
        subprocess.run(["userdel", name], check=False, capture_output=True)


@pytest.fixture(scope="module", name="lab")
def lab_fixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("login")
    with Provider() as p, system_user() as (user, pam), browser.Browser() as b:
        p.people.update({"eva": {"name": "Eva P"}, "joan": {"user": user}})
        port = free_ports(1)[0]
        config = (f"[cluster]\nname = lab\nlisten = 127.0.0.1:{port}\n[node *]\ncpus = 4\nmemory = 4G\n" + pam +
                  section("lab", p, folder, "title = Lab account\nuser_claim = user\n"))
        with Cluster(config=config) as c:
            c.cli("user", "add", "ana", "--full-name", "Ana B", "--role", "operator", "--unix-user", user or "root")
            subprocess.run([c.binary, "user", "passwd", "ana"], env=c.env, input=f"{PASSWORD}\n".encode(), check=True)
            c.cli("user", "add", "boss", "--role", "admin", "--unix-user", "daemon")
            subprocess.run([c.binary, "user", "passwd", "boss"], env=c.env, input=f"{PASSWORD}\n".encode(), check=True)
            c.system_user, c.tls = user, f"127.0.0.1:{port}"
            yield c, p, b, place(c)[0]


def shot(page, name):
    if SHOTS:
        page.screenshot(f"{SHOTS}/{name}.png")


def fill(page, label, text):
    field = f"document.getElementById([...document.querySelectorAll('label')].find(l => l.innerText.trim() === {json.dumps(label)})?.htmlFor)"
    page.wait(field)
    for _ in range(20):  # a dialog that opens takes the focus
        page.evaluate(f"{field}.focus(), {field}.select()")
        page.type(text)
        if page.evaluate(f"{field}.value") == text:
            return
    raise AssertionError(f"{label} cannot be filled in")


def by_password(page, url, user, tab=None, password=PASSWORD):
    page.goto(url)
    page.wait_text("Log in to lab")
    if tab and "System account" in page.text():
        page.click(tab)
    fill(page, "User", user)
    fill(page, "Password", password)
    page.click("form button[type=submit]")


def quiet(page):
    """Without the refusals that a page which is not logged in, or a wrong password, is answered with."""
    assert [p for p in page.problems if "401" not in p] == []


def click_in_row(page, start, what):
    """On what is in the row of a table that begins so."""
    found = f"[...document.querySelectorAll('tr')].find(r => r.innerText.startsWith({json.dumps(start)}))?.querySelector('{what}:not(:disabled)')"
    page.wait(found)
    page.evaluate(f"{found}.click()")


def session_of(page):
    found = [c["value"] for c in page.call("Network.getCookies")["cookies"] if c["name"].endswith("acequia_session")]
    return found[0] if found else None


def test_an_own_user(lab):
    _, _, b, host = lab
    page = b.page()
    by_password(page, f"http://{host}/jobs?text=x", "ana", "Acequia account", "wrong horse")
    page.wait_text("name or password is wrong")
    shot(page, "login")
    fill(page, "Password", PASSWORD)
    page.press("Enter")
    page.wait("document.querySelector('nav') && location.pathname === '/jobs' && location.search === '?text=x'")
    page.goto(f"http://{host}/account")
    page.wait_text("Ana B")
    page.wait_text("own:ana")
    quiet(page)


def test_who_may_only_look_is_told_so_and_not_refused(lab):
    """An own user whom nothing maps to a user of the system: no page asks for what would be refused."""
    c, _, b, host = lab
    c.cli("user", "add", "guest")
    subprocess.run([c.binary, "user", "passwd", "guest"], env=c.env, input=f"{PASSWORD}\n".encode(), check=True)
    job = c.cli("submit", "-Q", "-o", f"{c.home}/private.out", "--", "sh", "-c", "echo secret word; sleep 600").stdout.strip()
    wait_until(lambda: c.api.get(f"/v1/jobs/{job}")["state"] == "RUNNING", 60, "it does not run")
    page = b.page()
    by_password(page, f"http://{host}", "guest", "Acequia account")
    page.wait("document.querySelector('.nav')")
    page.problems = []
    for path, text in ((f"/jobs/{job}", "Only its user, project mates who share and administrators see this."), ("/files", "You have no files here"), ("/new", "you may look, not submit"),
                       ("/apps", "you may look, not submit"), ("/clusters", "you may look, not submit"), ("/admin", "Only administrators may see this page"),
                       ("/admin/people", "Only administrators may see this page")):
        page.goto(f"http://{host}{path}")
        page.wait_text(text)
        page.wait("document.querySelectorAll('.loading, [aria-busy=true]').length === 0")
    assert "secret word" not in page.text()
    assert page.problems == []
    c.cli("cancel", job)


def test_a_user_of_the_system(lab):
    c, _, b, host = lab
    if not c.system_user:
        pytest.skip("users and services of PAM are root's to make")
    page = b.page()
    by_password(page, f"http://{host}/account", c.system_user, "System account", "wrong horse")
    page.wait_text("name or password is wrong")
    fill(page, "Password", PASSWORD)
    page.press("Enter")
    page.wait_text(f"pam:{c.system_user}")
    status, made, _ = ask(host, "POST", "/v1/jobs", {"spec": {"argv": ["true"], "workdir": "/", "output": "/dev/null"}}, session_of(page), **SAME)
    assert status == 201 and c.api.get(f"/v1/jobs/{made['id']}")["user"] == c.system_user
    quiet(page)


def test_a_provider(lab):
    _, _, b, host = lab
    page = b.page()
    page.goto(f"http://{host}/account?next=http://127.0.0.1:9/evil")
    page.click("Log in with Lab account")
    page.wait_text("Who are you?")
    page.click("eva")
    page.wait_text("oidc:lab:id-eva")
    page.wait_text("Eva P")
    page.wait_text("not mapped to a user")
    # Nothing of the provider's answer stays in the address; one comes back to the page that was asked for, on this server.
    assert page.evaluate("location.href") == f"http://{host}/account?next=http://127.0.0.1:9/evil"
    assert "acequia_login" not in {c["name"] for c in page.call("Network.getCookies")["cookies"]}
    shot(page, "account-oidc")
    quiet(page)


def test_a_provider_that_refuses(lab):
    _, _, b, host = lab
    page = b.page()
    page.goto(f"http://{host}/")
    page.click("Log in with Lab account")
    page.click("nobody of these")
    page.wait_text("The provider did not let you in.")
    shot(page, "login-refused")
    # A link that somebody else made finishes nothing.
    page.goto(f"http://{host}/login/lab/callback?code=stolen&state={'0' * 64}")
    page.wait_text("begun in another browser")
    assert session_of(page) is None
    quiet(page)


def test_a_page_to_come_back_to_is_never_elsewhere(lab):
    _, _, b, host = lab
    for wrong in ("//127.0.0.1:9/", "http://127.0.0.1:9/", "/login/lab/callback?code=a&state=b", "javascript:alert(1)"):
        page = b.page()
        page.goto(f"http://{host}/")
        page.click("Log in with Lab account")
        page.wait_text("Who are you?")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=f"if (location.host === {json.dumps(host)} && !window.top.once) "
                  f"{{ sessionStorage.setItem('acequia.next', {json.dumps(wrong)}); }}")
        page.click("eva")
        page.wait("document.querySelector('nav')")
        assert page.evaluate("location.origin + location.pathname") == f"http://{host}/", wrong


def test_a_session_is_made_at_the_login(lab):
    """Fixation: a cookie that somebody planted beforehand is worth nothing afterwards, and the login before ends."""
    _, _, b, host = lab
    planted = f"{'a' * 16}.{'b' * 64}"
    page = b.page()
    page.call("Network.setCookie", url=f"http://{host}/", name="acequia_session", value=planted, path="/")
    by_password(page, f"http://{host}/", "ana", "Acequia account")
    page.wait("document.querySelector('nav')")
    first = session_of(page)
    assert first and first != planted and ask(host, "GET", "/v1/me", cookie=planted)[0] == 401
    status, _, second = ask(host, "POST", "/v1/login", {"method": "own", "user": "ana", "password": PASSWORD}, first, **SAME)
    assert status == 200 and second != first and ask(host, "GET", "/v1/me", cookie=first)[0] == 401


def remote(c, home, *words, check=True, **more):
    env = {k: v for k, v in c.env.items() if k != "ACEQUIA_HOST"} | {"ACEQUIA_HOME": home, "USER": "eva"}
    r = subprocess.run([c.binary, *words], env=env, text=True, capture_output=True, timeout=120, check=False, **more)
    assert not check or r.returncode == 0, r.stderr
    return r


def fingerprint(c):
    return re.search(r"Fingerprint\s+([0-9a-f]{64})", c.cli("whoami").stdout).group(1)


def test_the_command_line_on_another_machine(lab):
    c, _, b, host = lab
    with tempfile.TemporaryDirectory() as home:
        refused = remote(c, home, "login", c.tls, check=False)
        assert refused.returncode == 1 and fingerprint(c) in refused.stderr and "whoami" in refused.stderr
        wrong = remote(c, home, "login", c.tls, "--fingerprint", "0" * 64, check=False)
        assert wrong.returncode == 1 and "does not have the fingerprint 0000" in wrong.stderr, wrong.stderr
        env = c.env | {"ACEQUIA_HOME": home}
        with subprocess.Popen([c.binary, "login", c.tls, "--fingerprint", fingerprint(c), "--scopes", "read", "--ttl", "1h"], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as waiting:
            try:
                opened = re.search(r"https://(\S+?)/device\?code=(\S+)", waiting.stderr.readline())
                code = re.search(r"code  ([A-Z-]{9})$", waiting.stderr.readline()).group(1)
                assert opened.group(1) == c.tls
                page = b.page()
                by_password(page, f"http://{host}/device?code={opened.group(2)}", "ana", "Acequia account")
                page.wait_text(code)
                page.wait_text("on this cluster")
                page.wait_text("look")
                shot(page, "device")
                page.click("Agree")
                page.wait_text("the program is logged in")
                out, err = waiting.communicate(timeout=60)
            finally:
                end_child(waiting)
        assert waiting.returncode == 0 and "Logged in at" in out, err
        saved = os.path.join(home, "login")
        assert os.stat(saved).st_mode & 0o777 == 0o600
        text = json.load(open(saved, encoding="utf-8"))
        assert text["server"] == c.tls and text["fingerprint"] == fingerprint(c)
        me = json.loads(remote(c, home, "whoami", "--json").stdout)
        assert me["user"] == (c.system_user or "root") and me["via"] == "token" and me["scopes"] == ["read"]
        assert "reading" in remote(c, home, "submit", "--", "true", check=False).stderr  # its scope
        assert "Logged out" in remote(c, home, "logout").stdout and not os.path.exists(saved)
        listed = json.loads(c.cli("token", "list", "--json").stdout)["tokens"]
        assert text["token"].split(".")[1] not in {t["id"] for t in listed}
        quiet(page)


def test_the_command_line_with_a_password(lab):
    c, _, _, _ = lab
    with tempfile.TemporaryDirectory() as home:
        words = ("login", c.tls, "--fingerprint", fingerprint(c), "--password", "--user", "ana", "--method", "own")
        assert "wrong" in remote(c, home, *words, input="wrong horse\n", check=False).stderr
        remote(c, home, *words, "--scopes", "submit", input=f"{PASSWORD}\n")
        assert json.loads(remote(c, home, "whoami", "--json").stdout)["scopes"] == ["read", "submit"]
        job = remote(c, home, "submit", "-Q", "-D", "/", "-o", "/dev/null", "--", "true").stdout.strip()
        assert c.api.get(f"/v1/jobs/{job}")["user"] == (c.system_user or "root")
        os.chmod(f"{home}/login", 0o644)
        assert "readable by others" in remote(c, home, "list", check=False).stderr
        os.chmod(f"{home}/login", 0o600)
        remote(c, home, "logout")
        assert "not logged in" in remote(c, home, "logout", check=False).stderr


def test_a_program_that_is_refused_and_codes_that_are_guessed(lab):
    c, _, b, host = lab
    page = b.page()
    by_password(page, f"http://{host}/device", "boss", "Acequia account")
    with tempfile.TemporaryDirectory() as home, subprocess.Popen(
            [c.binary, "login", c.tls, "--fingerprint", fingerprint(c)], env=c.env | {"ACEQUIA_HOME": home}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE) as waiting:
        try:
            waiting.stderr.readline()  # the link, which has the request in it
            code = re.search(r"code  ([A-Z-]{9})$", waiting.stderr.readline()).group(1)
            fill(page, "Code", code.lower().replace("-", ""))  # as people type
            page.click("Next")
            page.click("Refuse")
            _, err = waiting.communicate(timeout=60)
        finally:
            end_child(waiting)
    assert waiting.returncode == 1 and "refused" in err
    session = session_of(page)
    seen = [ask(host, "GET", f"/v1/devices/BBBB-BBB{x}", cookie=session)[0] for x in "BCDFGHJKLMNP"]
    assert seen[0] == 404 and seen[-1] == 429, seen


def test_people_and_their_logins(lab):
    c, _, b, host = lab
    page, other = b.page(), b.page()
    by_password(page, f"http://{host}/admin/people", "boss", "Acequia account")
    page.click("New account")
    fill(page, "User", "pere")
    fill(page, "Name", "Pere M")
    fill(page, "Other logins", "oidc:lab:id-pere, pam:pere")
    page.evaluate("(() => { const s = document.querySelector('dialog select'); s.value = 'operator'; s.dispatchEvent(new Event('change', { bubbles: true })); })()")
    page.click("dialog summary")
    page.wait_text("acequia user add pere --role operator")
    shot(page, "people-new")
    page.click(".dialog-foot .primary")
    page.wait("[...document.querySelectorAll('tr')].some(r => r.innerText.startsWith('pere'))")
    listed = next(u for u in json.loads(c.cli("user", "list", "--json").stdout)["users"] if u["name"] == "pere")
    assert listed["identities"] == ["oidc:lab:id-pere", "pam:pere"] and listed["role"] == "operator"
    click_in_row(page, "pere", "[aria-haspopup]")
    page.evaluate("[...document.querySelectorAll('[role=menuitem]')].find(x => x.innerText.trim() === 'Set password').click()")
    fill(page, "New password", PASSWORD)
    page.click(".dialog-foot .primary")
    page.wait_text("The password of pere is set.")
    by_password(other, f"http://{host}/", "pere", "Acequia account")
    other.wait("document.querySelector('nav')")
    page.goto(f"http://{host}/admin/people")
    page.wait_text("own:pere")
    page.wait_text("Pere M")
    shot(page, "people")
    click_in_row(page, "pere", "[aria-haspopup]")
    page.evaluate("[...document.querySelectorAll('[role=menuitem]')].find(x => x.innerText.trim() === 'End logins' && !x.disabled).click()")
    page.click(".dialog-foot .danger")
    page.wait_text("The logins of pere have ended.")
    assert ask(host, "GET", "/v1/me", cookie=session_of(other))[0] == 401
    click_in_row(page, "pere", "[aria-haspopup]")
    page.evaluate("[...document.querySelectorAll('[role=menuitem]')].find(x => x.innerText.trim() === 'Remove').click()")
    page.click(".dialog-foot .danger")
    page.wait("![...document.querySelectorAll('tr')].some(r => r.innerText.startsWith('pere'))")
    no_problems(page)


def test_ones_own_sessions_and_tokens(lab):
    c, _, b, host = lab
    page = b.page()
    for _ in range(2):
        assert ask(host, "POST", "/v1/login", {"method": "own", "user": "ana", "password": PASSWORD}, **SAME)[0] == 200
    by_password(page, f"http://{host}/account", "ana", "Acequia account")
    page.wait_text("this one")
    page.click("Log out everywhere else")
    page.click(".dialog-foot .danger")
    wait_until(lambda: len([s for s in json.loads(c.cli("session", "list", "--json").stdout)["sessions"] if s["identity"] == "own:ana"]) == 1, 20,
               "the other logins go on")
    page.wait("[...document.querySelectorAll('table')][0].querySelectorAll('tbody tr').length === 1")
    page.click("New token")
    page.evaluate("(() => { const s = document.querySelectorAll('dialog select')[1]; s.value = 'read'; s.dispatchEvent(new Event('change', { bubbles: true })); })()")
    page.click("dialog summary")
    page.wait_text("--scopes read")
    shot(page, "account-token")
    page.click(".dialog-foot .primary")
    page.wait_text("It is shown only now")
    shot(page, "account")
    made = page.evaluate("[...document.querySelectorAll('code, pre')].map(x => x.innerText).find(x => x.startsWith('aq1.'))")
    token = next(t for t in json.loads(c.cli("token", "list", "--json").stdout)["tokens"] if t["id"] == made.split(".")[1])
    assert token["scopes"] == ["read"] and token["user"] == (c.system_user or "root")
    click_in_row(page, token["id"], ".button.danger")
    page.click(".dialog-foot .danger")
    wait_until(lambda: made.split(".")[1] not in c.cli("token", "list").stdout, 20, "the token is not revoked")
    quiet(page)
