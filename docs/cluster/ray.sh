#!/bin/bash
# A study of many runs on several machines under SLURM: a Ray cluster whose workers take the tasks of the study.
#   sbatch docs/cluster/ray.sh studies/mine.toml --store /shared/store
# Without SLURM, run `ray start --head` on one machine, `ray start --address HOST:6379` on the others, and the last
# command on any of them. The store lies on a file system that all of them share. Whoever reaches the port can run code
# on the cluster: in an open network set RAY_AUTH_MODE=token on all machines (see the documentation of Ray).
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --requeue

export RAY_USAGE_STATS_ENABLED=0
trap 'kill $(jobs -p)' EXIT # the cluster ends with the study
HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --nodes 1 --ntasks 1 --nodelist "$HOST" ray start --head --port 6379 --num-cpus "$SLURM_CPUS_PER_TASK" --block &
until ray health-check --address "$HOST:6379" > /dev/null 2>&1; do kill -0 $! || exit 1; sleep 2; done
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then # they take tasks as soon as they have joined
  srun --nodes $((SLURM_JOB_NUM_NODES - 1)) --ntasks $((SLURM_JOB_NUM_NODES - 1)) --exclude "$HOST" \
    ray start --address "$HOST:6379" --num-cpus "$SLURM_CPUS_PER_TASK" --block &
fi
regun study run "$1" --engine "ray:$HOST:6379" "${@:2}"
