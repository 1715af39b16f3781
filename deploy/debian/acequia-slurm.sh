# Puts sbatch, squeue, srun and the other Slurm commands of Acequia on PATH, for every login shell.
# They come last: where a real Slurm is installed, its own commands win.
case ":$PATH:" in
*:/usr/lib/acequia/slurm:*) ;;
*) PATH="$PATH:/usr/lib/acequia/slurm" ;;
esac
export PATH
