"""Every command of the guides is run. Jobs that they name by number do not exist here, so what counts is that the
program knows the command: no usage error (status 2), no unknown option, no crash."""
import os
import re
import subprocess

import pytest

from lab.command import ACEQUIA, ROOT, Cluster

CONFIG = "[node *]\ncpus = 8\nmemory = 80G\ngpus = V100:8:32G\ngpus_simulated = true\n"
SCRIPTS = {"train.sh": "#!/bin/sh\ntrue\n", "sweep.sh": "#!/bin/sh\ntrue\n", "eval.sh": "#!/bin/sh\ntrue\n", "job.sh": "#!/bin/sh\n#SBATCH -t 1\ntrue\n", "train.py": "print(1)\n"}
# What needs a terminal, a network, another machine or would end the cluster; each has tests of its own.
SKIPPED = re.compile(r"--pty|acequia (bash|top|up|down|join|agent|exec|cp|files)\b|docker://|--container|make|apt-get|systemctl|^cp |logs -f|-N 2|cluster (run|exec)|^export|^eval|ACEQUIA_HOST")


def commands(page):
    blocks, inside = [], False
    with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as f:
        for line in f:
            if line.startswith("```"):
                inside = not inside
                if inside:
                    blocks.append("")
            elif inside:
                blocks[-1] += line
    found = []
    for block in blocks:
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        if lines and lines[0].startswith("#!"):
            continue
        for line in lines:
            line = re.sub(r"^\$ ", "", re.sub(r"\s+#.*$", "", line))
            if re.match(r"(acequia|sbatch|squeue|sinfo|scancel|sacct|srun|scontrol) ", line) and not SKIPPED.search(line):
                found.append(line)
    return found


@pytest.fixture(scope="module")
def c():
    c = Cluster(CONFIG)
    for name, text in SCRIPTS.items():
        path = os.path.join(c.work, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)
    c.acequia("slurm-commands", os.path.join(c.home, "slurm"))
    c.env["PATH"] = f"{os.path.dirname(ACEQUIA)}:{os.path.join(c.home, 'slurm')}:{os.environ['PATH']}"
    c.env["HOME"] = c.home
    yield c
    c.close()


@pytest.mark.parametrize("page, least", [("guide.md", 25), ("guide-admin.md", 20), ("guide-serving.md", 12)])
def test_commands_of_a_guide(c, page, least):
    found = commands(page)
    assert len(found) >= least, found
    problems = []
    for command in found:
        r = subprocess.run(["bash", "-c", command], cwd=c.work, env=c.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if r.returncode < 0 or r.returncode > 125 or (r.returncode == 2 and "1.5" not in command) or re.search(r"unknown option|unknown verb|is not a verb", r.stderr):
            problems.append(f"{command}: {r.returncode}: {r.stderr.strip()}")
    assert not problems, "\n".join(problems)
