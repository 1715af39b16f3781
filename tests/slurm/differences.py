"""Differences that are meant: the tables of docs/slurm-differences.md. "Lines that end differently"
names whole command lines; "Messages" has patterns of lines that only one side prints. Whatever is not
there fails the tests; with ACEQUIA_STRICT set, so does what is there and does not differ any more."""
import os
import re

DOC = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs/slurm-differences.md")


def table(heading):
    """Rows of the table under a heading, as lists of cells."""
    with open(DOC, encoding="utf-8") as f:
        text = f.read()
    part = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def quoted(cell):
    """What stands in backquotes in a cell."""
    return re.findall(r"`([^`]+)`", cell)


KNOWN = {line: row[3] for row in table("Lines that end differently") for line in quoted(row[0])}
MESSAGES = [(quoted(row[0]), quoted(row[1]), quoted(row[2])) for row in table("Messages")]

# Held jobs that are shown with more nodes by Slurm, which guesses one per task.
KNOWN_HELD = {"-n 2 -c 3", "--cpus-per-task 2 --ntasks 2"}


def ranks(text):
    """Task numbers of "0,2-3"."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def tasks_together(found):
    """Tasks that ended alike are told in one line or in several, as it happens."""
    other, alike = [], {}
    for line in found:
        hit = re.match(r"srun: error: nX: tasks? ([\d,-]+): (.*)", line)
        if hit:
            alike.setdefault(hit.group(2), set()).update(ranks(hit.group(1)))
        else:
            other.append(line)
    return other + [f"srun: error: nX: tasks {','.join(map(str, sorted(v)))}: {k}" for k, v in alike.items()]


def plain(text):
    """Messages without what differs by nature: names of daemons, numbers, times, places, order."""
    text = re.sub(r"slurmstepd-\w+:", "slurmstepd:", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "<time>", text)
    text = re.sub(r"(StepId=|STEP |[Jj]ob |allocation )\d+", r"\1N", text)
    text = re.sub(r"/tmp/[\w./-]+", "<path>", text)
    text = re.sub(r"\bn[12]\b", "nX", text)
    text = re.sub(r".*(queued and waiting for|has been allocated) resources\n?", "", text)  # as it happens
    return sorted(set(tasks_together(line.rstrip() for line in text.splitlines() if line.strip())))


def unexplained(line, slurm, here):
    """Messages of one side alone that no row of the table allows."""
    left, right = plain(slurm), plain(here)
    only = [x for x in left if x not in right], [x for x in right if x not in left]
    rows = [(a, b) for where, a, b in MESSAGES if any(re.search(w, line) for w in where)]
    return [[x for x in lines if not any(re.search(p, x) for row in rows for p in row[side])] for side, lines in enumerate(only)]
