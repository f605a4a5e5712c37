"""Run in its own process by test_ray: a cluster of one node on loopback, whose head is killed while a study runs."""

import os
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ["RAY_gcs_rpc_server_reconnect_timeout_s"] = "5"  # noqa: SIM112 - Ray's own spelling


def main(folder: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    from mini import study
    from regun.errors import RegunError
    from regun.experiments.study.context import Location
    from regun.experiments.study.opened import OpenStudy
    from regun.experiments.study.ray_executor import RayExecutor
    from regun.experiments.study.scheduler import execute

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    opened = OpenStudy(study(folder=folder), Location(str(folder / "store")))
    killed: list[str] = []

    def on_event(event) -> None:
        if event.event == "finished" and not killed:
            killed.append(event.task)
            (folder / "killed").write_text(event.task)
            cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)

    try:
        execute(opened, RayExecutor(opened, threads=1), on_event)
    except RegunError as fault:
        (folder / "said").write_text(str(fault))
        os._exit(7)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(Path(sys.argv[1]))
