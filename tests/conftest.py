"""Settings for all journeys: the files that took longest in the last run start first, so that parallel workers finish
at about the same time; durations come from the file that tests/run.py writes, in a new clone from durations.json."""
import json
import os

from tests.lab.cluster import Cluster

FOLDER = os.path.dirname(os.path.abspath(__file__))


def recorded():
    """Path below this folder, as a JUnit file has it -> seconds in the last run."""
    for path in (os.environ.get("ACEQUIA_DURATIONS", ""), os.path.join(FOLDER, "durations.json")):
        try:
            with open(path, encoding="utf-8") as f:
                return json.load(f)
        except (OSError, ValueError):
            continue
    return {}


def pytest_collection_modifyitems(config, items):
    seconds = recorded()
    counts = {}
    for item in items:
        counts[item.fspath] = counts.get(item.fspath, 0) + 1

    def weight(item):
        path = os.path.relpath(str(item.fspath), FOLDER)
        # A file that has never been timed is taken to need two seconds a test.
        return -seconds.get(path, 2.0 * counts[item.fspath]), path

    if config.getoption("--backwards"):  # tests that need one before them fail
        items.reverse()
    items.sort(key=weight)  # stable: the order inside a file stays


def pytest_addoption(parser):
    parser.addoption("--backwards", action="store_true", help="the tests of a file from the last to the first")


def pytest_runtest_setup():
    """Tests share clusters: what the test before cancelled must not hold resources in this one."""
    for cluster in list(Cluster.living):
        cluster.settle()
