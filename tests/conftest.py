"""Journeys use a cluster per file; a test that changes a cluster makes its own."""
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab.command import ACEQUIA, Cluster  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes; not part of make test")
    config.addinivalue_line("markers", "gpu: needs a real GPU")


@pytest.fixture(scope="module")
def cluster():
    if not os.access(ACEQUIA, os.X_OK):
        pytest.fail(f"{ACEQUIA} is not built; run make build")
    c = Cluster()
    yield c
    c.close()


@pytest.fixture
def new_cluster():
    """A function that makes clusters, which end with the test."""
    made = []

    def make(*args, **more):
        made.append(Cluster(*args, **more))
        return made[-1]

    yield make
    for c in made:
        c.close()
