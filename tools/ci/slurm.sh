#!/usr/bin/env bash
#SBATCH --job-name=ttrace
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --signal=B:TERM@60
#SBATCH --output=ttrace-%j.log
# Submit it from the top of the repository, with ttrace on the PATH (pip install of its wheel, or build/bin):
# sbatch tools/ci/slurm.sh. A minute before its time is over, ttrace is told to
# stop (B: this process only). What was collected is kept: submit it once more, and it goes on from there.
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) # jobs that share a node must not share a port
export MASTER_ADDR MASTER_PORT OMP_NUM_THREADS=1

# exec: the signal is for ttrace, which passes it on to srun.
exec ttrace run tools/ci/slurm.yaml --junit "ttrace-$SLURM_JOB_ID.xml" --html "ttrace-$SLURM_JOB_ID.html" \
  --history ttrace-history.sqlite
