"""Machines of a test network: network namespaces joined by a bridge that has a namespace of its
own, so that no address ever appears on the real host. Needs root and iproute2.

    with Network(["head", "n1", "n2"]) as net:
        net.command("n1", "ping", "-c1", net.address("head"))
        net.cut("n1"); net.heal("n1")
"""
import itertools
import os
import subprocess

from .proc import LabError

_numbers = itertools.count(1)


class Network:
    """Hosts are named by the caller; each gets an address in 10.77.0.0/24."""

    def __init__(self, hosts):
        self.prefix = f"aq{os.getpid()}-{next(_numbers)}"
        self.hosts = list(hosts)
        self.namespaces = []

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    def address(self, host):
        """The host's address."""
        return f"10.77.0.{self.hosts.index(host) + 1}"

    def namespace(self, host):
        """The host's network namespace."""
        return f"{self.prefix}-{host}"

    def command(self, host, *command):
        """A command line that runs on that host."""
        return ["ip", "netns", "exec", self.namespace(host), *command]

    def up(self):
        """Makes the namespaces, the bridge and the links."""
        try:
            self._add_namespace(self.namespace("hub"))
            self._hub("link", "add", "br0", "type", "bridge")
            self._hub("link", "set", "br0", "up")
            for host in self.hosts:
                self._add_host(host)
        except BaseException:
            self.down()
            raise

    def down(self):
        """Removes everything; links vanish with their namespaces."""
        for name in reversed(self.namespaces):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        self.namespaces = []

    def cut(self, host):
        """Pulls the host's cable."""
        self._hub("link", "set", self._port(host), "down")

    def heal(self, host):
        """Plugs it in again."""
        self._hub("link", "set", self._port(host), "up")

    def cut_one_way(self, host, direction):
        """Silently loses all the host sends ("out") or should receive ("in"): the frames go to a
        hardware address that nobody has. Needs no packet filter in the kernel."""
        for sender, receiver in self._pairs(host, direction):
            self._run("ip", "-n", self.namespace(sender), "neighbour", "replace",
                      self.address(receiver), "lladdr", "02:00:00:00:00:fe", "dev", "e0",
                      "nud", "permanent")

    def heal_one_way(self, host, direction):
        """Ends cut_one_way."""
        for sender, receiver in self._pairs(host, direction):
            self._run("ip", "-n", self.namespace(sender), "neighbour", "del",
                      self.address(receiver), "dev", "e0")

    def _pairs(self, host, direction):
        others = [h for h in self.hosts if h != host]
        return [(host, o) if direction == "out" else (o, host) for o in others]

    def _port(self, host):
        return f"p{self.hosts.index(host) + 1}"

    def _add_namespace(self, name):
        self._run("ip", "netns", "add", name)
        self.namespaces.append(name)
        self._run("ip", "-n", name, "link", "set", "lo", "up")

    def _add_host(self, host):
        name, port = self.namespace(host), self._port(host)
        self._add_namespace(name)
        self._hub("link", "add", port, "type", "veth", "peer", "name", "e0", "netns", name)
        self._hub("link", "set", port, "master", "br0")
        self._hub("link", "set", port, "up")
        self._run("ip", "-n", name, "address", "add", f"{self.address(host)}/24", "dev", "e0")
        self._run("ip", "-n", name, "link", "set", "e0", "up")

    def _hub(self, *arguments):
        self._run("ip", "-n", self.namespace("hub"), *arguments)

    @staticmethod
    def _run(*command):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"{' '.join(command)}: {done.stderr.strip()}")
