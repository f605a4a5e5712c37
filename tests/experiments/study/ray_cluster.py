"""Run in its own process by test_ray: a cluster of two node processes on loopback, one killed while it works."""

import json
import os
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"


def main(folder: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    from mini import study
    from regun.experiments.study.context import Location
    from regun.experiments.study.opened import OpenStudy
    from regun.experiments.study.ray_executor import RayExecutor
    from regun.experiments.study.scheduler import execute

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    doomed = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    opened = OpenStudy(study((folder / "mini.toml").read_text(), folder), Location(str(folder / "store")))
    seen: dict[str, str] = {}
    state = {"killed": ""}

    def on_event(event) -> None:
        if event.event == "started":
            seen[event.task] = event.node
        busy = [task for task, node in seen.items() if node == doomed.node_id]
        if event.event in ("step", "epoch") and event.task in busy and not state["killed"]:
            state["killed"] = event.task
            cluster.remove_node(doomed, allow_graceful=False)

    ran = execute(opened, RayExecutor(opened, threads=1), on_event)
    (folder / "ran.json").write_text(
        json.dumps({"made": ran.made, "found": ran.in_store, "failed": ran.failed, **state})
    )
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(Path(sys.argv[1]))
