"""A PostgreSQL server of Debian's in a temporary folder, reached through a socket there.

    with Postgres() as db:
        db.uri            # postgresql:///acequia?host=...
        db.kill(); db.start()

As a program: runs a command with the address in ACEQUIA_TEST_DATABASE and stops the server after it.
    python3 tests/lab/postgres.py COMMAND...
"""
import glob
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

START_MAX_S = 60


def programs():
    """The folder of the newest server's programs."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: int(p.split("/")[-2]))
    if not found:
        raise RuntimeError("no PostgreSQL server is installed: tools/setup --test installs it")
    return found[-1]


class Postgres:
    def __init__(self, settings=(), room_mb=0):
        """With `room_mb` it lies on a file system of its own of that size, which root can mount and fill()."""
        self.folder = tempfile.mkdtemp(prefix="acequia-pg-")
        self.room = room_mb > 0
        if self.room:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room_mb}m", "tmpfs", self.folder], check=True)
        self.data = os.path.join(self.folder, "data")
        self.settings = list(settings)
        self.process = None
        self.port = 5432  # of its socket
        self.as_user = []
        if os.geteuid() == 0:  # the server refuses to run as root
            user = pwd.getpwnam("postgres")
            self.as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            os.chmod(self.folder, 0o755)
        self.run("initdb", "-D", self.data, "-A", "trust", "-U", "acequia", "-E", "UTF8", "--locale=C", "--no-sync")
        self.start()
        self.psql("CREATE DATABASE acequia", database="postgres")
        self.uri = self.address("acequia")

    def address(self, database):
        return f"postgresql:///{database}?host={self.folder}&user=acequia"

    def run(self, program, *arguments):
        subprocess.run([*self.as_user, os.path.join(programs(), program), *arguments], check=True, cwd="/",
                       stdout=subprocess.DEVNULL, timeout=120)

    def start(self):
        options = [o for s in ("listen_addresses=", f"unix_socket_directories={self.folder}", *self.settings)
                   for o in ("-c", s)]
        self.log = open(os.path.join(self.folder, "server.log"), "ab")
        self.process = subprocess.Popen([*self.as_user, os.path.join(programs(), "postgres"), "-D", self.data, *options],
                                        cwd="/", stdout=self.log, stderr=self.log, start_new_session=True)
        end = time.monotonic() + START_MAX_S
        while subprocess.run([os.path.join(programs(), "pg_isready"), "-q", "-h", self.folder, "-p", str(self.port)]).returncode != 0:
            if time.monotonic() > end or self.process.poll() is not None:
                with open(os.path.join(self.folder, "server.log")) as log:
                    raise RuntimeError("PostgreSQL does not start: " + log.read()[-2000:])
            time.sleep(0.05)

    def psql(self, sql, database="acequia"):
        """What a statement answers: rows as lines, columns divided by |."""
        return subprocess.run([os.path.join(programs(), "psql"), "-h", self.folder, "-p", str(self.port), "-U", "acequia", "-d", database, "-X",
                               "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql],
                              check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    def send(self, number):
        """To the server and all its processes, which are in groups of their own."""
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            for p in [pid, *map(int, children.read().split())]:
                try:
                    os.kill(p, number)
                except ProcessLookupError:
                    pass

    def stop(self, how=signal.SIGINT):
        """SIGINT ends sessions and stops; SIGKILL to all is a power cut, as far as a process can have one."""
        if self.process and self.process.poll() is None:
            if how == signal.SIGKILL:
                self.send(how)
            else:
                self.process.send_signal(how)
            self.process.wait(timeout=60)
        self.process = None
        self.log.close()

    def kill(self):
        self.stop(signal.SIGKILL)

    def fill(self):
        """Takes all the room that is left."""
        with open(f"{self.folder}/filler", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(1 << 16))
            except OSError:
                pass

    def make_room(self):
        """Ends fill()."""
        os.unlink(f"{self.folder}/filler")

    def close(self):
        self.stop(signal.SIGQUIT)
        if self.room:
            subprocess.run(["umount", "-l", self.folder], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


if __name__ == "__main__":
    with Postgres() as server:
        environment = {**os.environ, "ACEQUIA_TEST_DATABASE": server.uri, "ACEQUIA_TEST_SERVER": str(server.process.pid)}
        sys.exit(subprocess.run(sys.argv[1:], env=environment).returncode)
