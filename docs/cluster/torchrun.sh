#!/bin/bash
# One run of regun on several machines under SLURM: `torchrun` starts one process per accelerator (or per core).
#   sbatch docs/cluster/torchrun.sh unlearn --base 9c41 --forget 0.1 --method regun --store /shared/store
# Without SLURM, run the last command on every machine, with HOST:PORT of the first one. All machines need the same
# environment and data, and one store on a file system that they share. A killed job goes on when submitted again,
# also with another number of processes.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --requeue

PER_NODE=${PER_NODE:-${SLURM_GPUS_ON_NODE:-8}}
export OMP_NUM_THREADS=$((${SLURM_CPUS_PER_TASK:-8} / PER_NODE > 0 ? ${SLURM_CPUS_PER_TASK:-8} / PER_NODE : 1))
HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node "$PER_NODE" --rdzv-id "$SLURM_JOB_ID" \
  --rdzv-backend c10d --rdzv-endpoint "$HOST:29500" -m regun "$@"
