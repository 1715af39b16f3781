"""Lines where the two sides differ on purpose: the line as in cases.py, and why. Each is explained in
docs/slurm-differences.md. A line that is listed and does not differ any more is a failure, too."""

KNOWN = {}
