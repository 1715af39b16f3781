"""Lines where the two sides differ on purpose: the line as in cases.py, and why. Each is explained in
docs/slurm-differences.md. With ACEQUIA_STRICT set, one that is listed and does not differ any more
is a failure, too."""

KNOWN = {
    "sbatch -a 1-3%x --wrap true": "a limit that is no number is refused, not dropped",
    "sbatch -c 1000 --wrap true": "what no node can ever hold is refused at once",
    "scontrol show hostnames 'n[3-1]'": "a list that cannot be read ends with 1",
}

# Held jobs that are shown with more nodes by Slurm, which guesses one per task.
KNOWN_HELD = {"-n 2 -c 3", "--cpus-per-task 2 --ntasks 2"}
