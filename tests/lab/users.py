"""A user of this machine with a shell and a home, for what looks them up by name."""
import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile


class User:
    """Runs programs as this user."""

    def __init__(self, name, home):
        entry = pwd.getpwnam(name)
        self.name, self.home, self.uid, self.gid = name, home, entry.pw_uid, entry.pw_gid

    def run(self, *command, env, **kwargs):
        kwargs.setdefault("stdin", subprocess.DEVNULL if "input" not in kwargs else None)
        if kwargs["stdin"] is None:
            del kwargs["stdin"]
        return subprocess.run(self.command(*command), env=self.env(env), cwd=self.home, capture_output=True, text=kwargs.pop("text", True),
                              timeout=120, check=False, **kwargs)

    def env(self, env):
        return dict(env, HOME=self.home, USER=self.name, LOGNAME=self.name)

    def command(self, *command):
        return ["setpriv", "--reuid", str(self.uid), "--regid", str(self.gid), "--clear-groups", *command]


@contextlib.contextmanager
def user(name, shell="/bin/sh"):
    """Made with its home, and gone with it at the end."""
    folder = tempfile.mkdtemp(prefix="acequia-home-")
    os.chmod(folder, 0o755)
    name = f"{name}{os.getpid()}"
    home = f"{folder}/{name}"
    subprocess.run(["useradd", "--create-home", "--home-dir", home, "--shell", shell, name], check=True, capture_output=True)
    try:
        yield User(name, home)
    finally:
        subprocess.run(["userdel", "--force", name], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
