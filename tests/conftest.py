"""Settings for all journeys: the files that took longest in the last run start first, so that parallel workers finish
at about the same time; durations come from the file that tests/run.py writes, in a new clone from durations.json."""
import json
import os


def recorded():
    """Path below the root of the tree -> seconds in the last run."""
    kept = os.path.join(os.path.dirname(os.path.abspath(__file__)), "durations.json")
    for path in (os.environ.get("ACEQUIA_DURATIONS", ""), kept):
        try:
            with open(path, encoding="utf-8") as f:
                return json.load(f)
        except (OSError, ValueError):
            continue
    return {}


def pytest_collection_modifyitems(config, items):
    seconds = recorded()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    counts = {}
    for item in items:
        counts[item.fspath] = counts.get(item.fspath, 0) + 1

    def weight(item):
        path = os.path.relpath(str(item.fspath), root)
        # A file that has never been timed is taken to need two seconds a test.
        return -seconds.get(path, 2.0 * counts[item.fspath]), path

    if config.getoption("--backwards"):  # tests that need one before them fail
        items.reverse()
    items.sort(key=weight)  # stable: the order inside a file stays


def pytest_addoption(parser):
    parser.addoption("--backwards", action="store_true", help="the tests of a file from the last to the first")
