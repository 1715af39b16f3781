"""A slice of make test-failover: clients of every kind at work while three controllers and their database are hurt."""
import os

import pytest

from lab.postgres import programs
from tests.kills.failover import FailoverCluster, run_rounds

ROUNDS = int(os.environ.get("FAILOVER_ROUNDS", "5"))


def has_postgres():
    try:
        return bool(programs())
    except RuntimeError:
        return False


@pytest.mark.skipif(not has_postgres(), reason="no PostgreSQL server is installed")
def test_clients_survive_faults_of_controllers_and_database(tmp_path):
    with FailoverCluster(str(tmp_path), 22) as lab:
        run_rounds(lab, ROUNDS)
        print(lab.counts)
