"""The PostgreSQL database of controllers: a private way there, settings that would lose records, one that was emptied,
and the commands that work on a state folder."""
import os
import subprocess

import pytest

from lab.cluster import find_binary
from lab.controllers import Controllers
from lab.postgres import Postgres
from lab.proc import free_ports, wait_until


def controller_says(tmp_path, uri, seconds=60):
    """What a controller with this database writes until it ends by itself; None: it went on."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    (home / "acequia.conf").write_text(f"[store]\ndatabase = {uri}\naddress = 127.0.0.1:1\n[portal]\nenabled = false\n")
    child = subprocess.Popen([find_binary(), "controller"], env=dict(os.environ, ACEQUIA_HOME=str(home)),
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        return child.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return None


@pytest.mark.parametrize("setting", ["fsync=off", "synchronous_commit=off", "full_page_writes=off"])
def test_settings_that_lose_records_are_refused(tmp_path, setting):
    with Postgres([setting]) as database:
        said = controller_says(tmp_path, database.uri)
    assert said is not None, "a controller runs on it"
    name = setting.split("=", maxsplit=1)[0]
    assert f"{name} = off" in said and f"ALTER SYSTEM SET {name} = on" in said, said


def make_certificates(folder):
    """An authority and a server's certificate for localhost."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)
    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.crt",
                "-subj", f"/CN={name}", "-days", "2")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-out", "server.crt", "-extfile", "names")


def test_tls_to_the_database(tmp_path):
    make_certificates(tmp_path)
    with Postgres() as database:
        for name in ("server.crt", "server.key"):
            path = f"{database.folder}/{name}"
            with open(path, "wb") as f:
                f.write((tmp_path / name).read_bytes())
            os.chmod(path, 0o600)
            owner = os.stat(database.data)
            os.chown(path, owner.st_uid, owner.st_gid)
        with open(f"{database.data}/pg_hba.conf", "a", encoding="ascii") as f:
            f.write("hostssl all all 127.0.0.1/32 trust\n")
        database.stop()
        port = free_ports(1)[0]
        database.settings = ["listen_addresses=127.0.0.1", f"port={port}", "ssl=on",
                             f"ssl_cert_file={database.folder}/server.crt", f"ssl_key_file={database.folder}/server.key"]
        database.port = port
        database.start()
        for name in ("ca.crt", "other.crt"):
            os.chmod(tmp_path / name, 0o644)
        uri = f"postgresql://acequia@localhost:{port}/acequia?hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert="
        # An authority that did not sign the server's certificate: it waits and says why.
        said = controller_says(tmp_path, f"{uri}{tmp_path}/other.crt", 8)
        assert said is None or "certificate verify failed" in said, said
        database.uri = f"{uri}{tmp_path}/ca.crt"
        with Controllers(2, database=database) as c:
            c.cli("run", "--", "true")
            plain = database.psql("SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
                                  " WHERE application_name LIKE 'acequia%' AND NOT ssl")
            private = database.psql("SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
                                    " WHERE application_name LIKE 'acequia%' AND ssl")
            assert plain == "0" and int(private) >= 4, (plain, private)


def on_machine(c, i, *arguments):
    return subprocess.run([c.binary, *arguments], env=dict(os.environ, ACEQUIA_HOME=f"{c.home}/c{i}"), capture_output=True,
                          text=True, check=False, timeout=120)


@pytest.mark.long
def test_an_emptied_database_is_noticed(tmp_path):
    with Controllers(2) as c:
        leader = c.leader()
        wait_until(lambda: os.path.exists(f"{c.home}/c{leader}/state/database"), 30, c.logs)
        # Commands that work on a state folder say where the state is.
        backup = on_machine(c, leader, "backup", str(tmp_path / "copy"))
        assert backup.returncode == 1 and "PostgreSQL" in backup.stderr and "pg_dump" in backup.stderr, backup
        restore = on_machine(c, leader, "restore", str(tmp_path / "copy"), "--yes")
        assert restore.returncode != 0, restore
        check = on_machine(c, leader, "check")
        assert check.returncode == 0 and "its journal ends at record" in check.stdout, check
        for i in range(2):
            c.kill(i)
        c.database.psql("DROP SCHEMA acequia CASCADE")
        c.start(leader)
        child = c.children[f"c{leader}"]
        assert child.wait(60) != 0
        assert "the database is empty, and this controller has seen" in c.logs()
        # On purpose: a new cluster.
        os.unlink(f"{c.home}/c{leader}/state/database")
        c.start(leader)
        assert c.wait_leader() == leader
