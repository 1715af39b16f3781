"""Runs a client made for Slurm, unmodified, against one side."""
import os
import subprocess
import sys
import textwrap

import pytest


def python_with(module):
    """A Python that has the module: one of $CLIENTS_PYTHON (several joined by ':'), or this one."""
    for python in (*os.environ.get("CLIENTS_PYTHON", "").split(":"), sys.executable):
        if python:
            tried = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False)
            if tried.returncode == 0:
                return python
    return pytest.skip(f"{module} is not installed; name a Python that has it in CLIENTS_PYTHON")


def environment(side, python):
    """The side's commands first, then the programs that came with the client; a home of its own."""
    path = f"{side.env['PATH']}:{os.path.dirname(python)}"
    return dict(side.env, PATH=path, HOME=side.work, USER="root", LOGNAME="root")


def run(side, python, text, timeout=120):
    """Runs a program in the side's folder; what it prints."""
    path = f"{side.work}/client.py"
    with open(path, "w", encoding="utf-8") as f:
        f.write(textwrap.dedent(text))
    done = subprocess.run([python, path], env=environment(side, python), cwd=side.work, capture_output=True, text=True,
                          timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
