#!/usr/bin/env bash
# Slurm job: one rank per task. Submit from the top folder of the checkout:
#   sbatch --nodes 2 --ntasks-per-node 4 launch/slurm.sh --config launch/recipes/imagenet-resnet50.toml
# The number of tasks must divide --logical-shards. Everything after the script's name goes to `renai train`.
#SBATCH --job-name=renai
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=2
#SBATCH --output=renai-%j.log
#SBATCH --open-mode=append
set -euo pipefail
# Slurm copies the script: the checkout is where the job was submitted.
cd "${SLURM_SUBMIT_DIR:?launch/slurm.sh runs under Slurm: submit it with sbatch}"
renai=${RENAI:-build/renai}
if ! [ -x "$renai" ]; then
  echo "launch/slurm.sh: $renai is missing in $PWD; build it there first (see README.md)" >&2
  exit 4
fi
run=${RENAI_RUN:-runs/slurm-${SLURM_JOB_ID:-0}}
# A requeued job finds the checkpoints of its earlier start in the same run directory and goes on from them.
exec srun --mpi=pmix --cpu-bind=cores "$renai" train --run-dir "$run" --resume auto "$@"
