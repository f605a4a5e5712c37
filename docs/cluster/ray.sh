#!/bin/bash
# A study of many runs on several machines under SLURM: a Ray cluster whose workers take the tasks of the study.
#   sbatch docs/cluster/ray.sh studies/mine.toml --store /shared/store
# Without SLURM, run `ray start --head` on one machine, `ray start --address HOST:6379` on the others, and the last
# command on any of them. The store lies on a file system that all of them share.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --requeue

HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --nodes 1 --ntasks 1 --nodelist "$HOST" ray start --head --port 6379 --num-cpus "$SLURM_CPUS_PER_TASK" --block &
sleep 15
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  srun --nodes $((SLURM_JOB_NUM_NODES - 1)) --ntasks $((SLURM_JOB_NUM_NODES - 1)) --exclude "$HOST" \
    ray start --address "$HOST:6379" --num-cpus "$SLURM_CPUS_PER_TASK" --block &
  sleep 15
fi
regun study run "$1" --engine "ray:$HOST:6379" "${@:2}"
