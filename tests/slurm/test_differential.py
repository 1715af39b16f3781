"""A real Slurm and Acequia receive the same command lines. The everyday slice leaves the long groups
out; all of them: pytest -m long tests/slurm."""
import json
import os
import re

import pytest

from . import cases, cases_acct, cases_lines, cases_long, cases_words
from .cases import Line, held, lines
from .differences import KNOWN, KNOWN_HELD, unexplained
from .sides import AcequiaSide, SlurmSide, end_all

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a private Slurm needs root")


@pytest.fixture(scope="module")
def sides():
    slurm = acequia = None
    try:
        slurm = SlurmSide(accounting=True)  # -M asks it
        acequia = AcequiaSide()
        slurm.names["cluster"], acequia.names["cluster"] = "lab", "acequia"
        yield slurm, acequia
    finally:
        end_all(acequia, slurm)


def compare(line, one, two):
    """What differs between the results of both sides; None: nothing that counts."""
    if one.code != two.code:
        return f"exit code {one.code} / {two.code}"
    alone = unexplained(line.line, one.err, two.err) if line.same != "code" else [[], []]
    if alone[0] or alone[1]:
        return f"only Slurm says {alone[0]}, only Acequia says {alone[1]}"
    if line.same == "some" and bool(one.out.strip()) != bool(two.out.strip()):
        return "only one prints something"
    if line.same == "out":
        left, right = ([x.rstrip() for x in r.out.rstrip().splitlines()] for r in (one, two))
        if left != right:
            return f"prints {left} / {right}"
    return None


def play(sides, group):
    """Runs a group on both sides; a list of differences that are not known."""
    found = []
    for line in group:
        if line.wait:
            for side in sides:
                side.wait(line.wait)
            continue
        one, two = (side.run(line.line, line.save, line.stdin, user=line.user) for side in sides)
        what = compare(line, one, two)
        known = line.line in KNOWN
        if what and not known:
            found.append(f"{line.line}\n    {what}\n    slurm {one}\n    acequia {two}")
        if known and not what and os.environ.get("ACEQUIA_STRICT"):
            found.append(f"{line.line}\n    is listed as different and is not")
    return found


def check(found):
    assert not found, f"{len(found)} differences:\n" + "\n".join(found)


def test_submit_options(sides):
    found = []
    for options in cases.HELD:
        fields = "%i %j %u %t %r %C %l %P" if options in KNOWN_HELD else "%i %j %u %t %r %D %C %l %P"
        found += play(sides, held(options, fields))
    check(found)


def test_refusals(sides):
    check(play(sides, [Line(x, "err") for x in cases.BAD]))


def test_values(sides):
    check(play(sides, lines(cases_words.VALUES)))


def test_short_lines(sides):
    check(play(sides, lines(cases_lines.SHORT)))


@pytest.mark.long
@pytest.mark.parametrize("group", ["QUEUE", "NODES", "STEP_LIST", "SCRIPTS", "RUNNING", "LICENSES"])
def test_lines(sides, group):
    check(play(sides, lines(getattr(cases_lines, group))))


def test_arrays(sides):
    check(play(sides, lines(cases_words.ARRAYS)))


@pytest.mark.long
def test_step_lines(sides):
    check(play(sides, lines(cases_words.STEPS)))


@pytest.mark.long
@pytest.mark.parametrize("story", ["UPDATES", "SIGNALS", "HISTORY"])
def test_stories(sides, story):
    check(play(sides, lines(getattr(cases_long, story))))


@pytest.mark.long
def test_several_partitions(sides):
    """A job that names several starts in the first that lets it; until then it shows all of them."""
    slurm, acequia = sides
    slurm.run("scontrol create partitionname=other nodes=n2 maxtime=10; scontrol create partitionname=third nodes=n1")
    acequia.acequia("partition", "create", "other", "--nodes", "n2", "--max-time", "10m", "--default-memory-per-cpu", "10M")
    acequia.acequia("partition", "create", "third", "--nodes", "n1", "--default-memory-per-cpu", "10M")
    try:
        check(play(sides, lines(cases_long.PARTITIONS)))
    finally:
        for side in sides:
            side.run("scancel -u root; sleep 1; scontrol delete partitionname=other; scontrol delete partitionname=third")


@pytest.mark.long
def test_control_without_rights(sides):
    check(play(sides, lines(cases_acct.STRANGER, user="nobody")))


def test_cancelling(sides):
    check(play(sides, lines(cases_acct.CANCEL)))


@pytest.mark.long
@pytest.mark.parametrize("story", ["WINDOW", "PAUSE", "HOLD", "THINGS", "LOOKS", "TOOLS"])
def test_accounts_and_control(sides, story):
    check(play(sides, lines(getattr(cases_acct, story))))


def test_another_user(sides):
    for side in sides:
        side.run("sbatch -H --parsable --wrap true", save="r")
    try:
        check(play(sides, lines(cases_long.OTHER, user="nobody")))
    finally:
        for side in sides:
            side.run("scancel {r}")


def parsed(text):
    """What was written; ids stand there by their names."""
    return json.loads(re.sub(r":( ?)(<\w+>|-?nan)", r":\1 0", text))


def shape(value):
    """The names in a value, without what is empty here or there."""
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else None


def missing(one, two, path=""):
    """Names that are in the first and not in the second."""
    found = []
    for k, v in (one or {}).items():
        if k not in two:
            found.append(f"{path}{k}")
        elif isinstance(v, dict) and isinstance(two[k], dict):
            found += missing(v, two[k], f"{path}{k}.")
    return found


# Nothing here has them: frequencies, federations, cores by socket, plugins' figures.
NOT_IN_JSON = {"allocated_nodes", "limits", "het", "mcs", "reservation", "wckey", "CPU", "statistics", "task", "component", "cpu_binding", "last_busy", "gres_drained",
               "next_state_after_reboot", "next_state_after_reboot_flags", "owner", "port", "tres_used", "tres_weighted", "requested", "consumed"}


def test_json_has_the_same_names(sides):
    for side in sides:
        side.run("sbatch --parsable -t 5 --wrap 'srun true; exit 1'", save="a")
        side.wait("a")
    for command, key in (("squeue --json -t all -j {a}", "jobs"), ("sacct --json -j {a}", "jobs"), ("sinfo --json", "nodes")):
        one, two = (parsed(side.run(command).out) for side in sides)
        assert set(one) == set(two), command
        lost = [x for x in missing(shape(one[key][0]), shape(two[key][0])) if x.split(".")[-1] not in NOT_IN_JSON]
        assert lost == [], command


@pytest.mark.long
def test_inside_a_job(sides):
    check(play(sides, lines(cases_words.INSIDE)))


def test_scripts(sides):
    found = []
    for name, text in cases.SCRIPTS_BAD.items():
        found += [f"{name}: {x}" for x in play(sides, [Line("sbatch -H", "code", stdin=text)])]
    for name, (text, fields) in cases.SCRIPTS.items():
        group = [Line("sbatch -H --parsable", save="j", stdin=text), Line(f"squeue -h -j {{j}} -o '{fields}'"), Line("scancel {j}")]
        found += [f"{name}: {x}" for x in play(sides, group)]
    check(found)


def test_fields(sides):
    group = [Line("sbatch -H --parsable -J fields -t 10 --mem=100 -n 2 --wrap true", save="j")]
    group += [Line(f"squeue -h -j {{j}} -o '%{c}'") for c in cases.FIELDS]
    group += [Line(f"squeue -j {{j}} -o '%.12{c}|%5{c}'") for c in "ijPutTMDl"]
    group += [Line(f"squeue -h -j {{j}} -O {n}") for n in cases.LONG_FIELDS]
    group += [Line("squeue -j {j}"), Line("squeue -j {j} -l -h"), Line("squeue -h -j {j} --start"), Line("scancel {j}")]
    check(play(sides, group))


def test_nodes_and_lists(sides):
    check(play(sides, [Line(x) for x in cases.SINFO + cases.HOSTLISTS]))


@pytest.mark.parametrize("group", range(len(cases.FLOWS)))
@pytest.mark.long
def test_flows(sides, group):
    check(play(sides, cases.FLOWS[group]))


@pytest.mark.parametrize("group", range(len(cases.STEPS)))
@pytest.mark.long
def test_steps(sides, group):
    check(play(sides, cases.STEPS[group]))


@pytest.mark.long
def test_runs(sides):
    found = []
    for command, options in cases.RUNS:
        found += play(sides, [Line(f"sbatch --parsable {options} -o run.out --wrap '{command}'", save="a"), Line("true", wait="a"),
                              Line("squeue -h -j {a} -t all -o '%T'")])
    check(found)


@pytest.mark.long
def test_show_has_the_same_names(sides):
    """scontrol show: the same NAME= in the same order."""
    for side in sides:
        side.run("sbatch -H --parsable --wrap true", save="a")
    for what in ("job {a}", "node n1", "partition main"):
        names = []
        for side in sides:
            words = side.run(f"scontrol show {what}").out.split()
            names.append([w.split("=")[0] for w in words if "=" in w])
        missing = [n for n in names[0] if n not in names[1] and n != "DefMemPerCPU"]  # no default is set
        assert missing == [], what
    for side in sides:
        side.run("scancel {a}")
