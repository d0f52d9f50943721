"""`python -m services up | down | status`: ZooKeeper, Kafka and a Redis Cluster on this machine, for experiments."""

import os
import sys
from pathlib import Path

import platformdirs
import typer

from services import background
from services.kafka import Kafka
from services.process import ServiceError
from services.redis_cluster import RedisCluster
from services.zookeeper import ZooKeeper
from tickwheel.embedded.file_lock import FileLock
from tickwheel.kafka.library import TOPIC

_WAIT_S = 300.0
# Absolute: the servers are started with other working directories.
_FOLDER = Path(
    os.environ.get("TICKWHEEL_SERVICES_DIR") or platformdirs.user_state_path("tickwheel") / "services"
).resolve()

_USE = """\
ZooKeeper      {zookeeper}
Kafka          {kafka}
Redis Cluster  {cluster}

To use them, first create the namespace, because its first client fixes its shards and history:
  export TICKWHEEL_URL={cluster} PATH="$PWD/.venv/bin:$PATH"
  python -c "from tickwheel import Tickwheel; Tickwheel('$TICKWHEEL_URL', shards=64, history='relay').close()"
  tickwheel events --shards 64 --election zk://{zookeeper}/tickwheel --kafka {kafka} &
  tickwheel enqueue orders 'order 17' --delay 5s

Logs and data: {folder}
To stop them: make services-down
"""

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)


@app.command()
def up() -> None:
    """Start all services on free ports, unless they run, and print their addresses. They outlive this program."""
    services = background.load_record(_FOLDER)
    ended = background.list_exited(_FOLDER)
    if ended and services and len(ended) < len(services.pids):
        raise ServiceError(
            f"some services have ended ({', '.join(ended)}), and the others still run. Nothing was changed."
            " `make services-down` ends the others, and deletes the data of all services"
        )
    if services is None or not services.pids or ended:
        if ended:
            print("All services have ended: they are started again, without their data.", file=sys.stderr)
        background.claim(_FOLDER, ("zookeeper", "kafka", "cluster"))
        zookeeper, kafka, cluster = (
            ZooKeeper(_FOLDER / "zookeeper"),
            Kafka(_FOLDER / "kafka"),
            RedisCluster(_FOLDER / "cluster"),
        )
        # Until the services are recorded, they are killed if this program ends.
        for service in (zookeeper, kafka, cluster):
            service.start()
        kafka.make_topic(TOPIC)
        addresses = {"zookeeper": zookeeper.hosts, "kafka": kafka.bootstrap, "cluster": cluster.url}
        background.record(_FOLDER, addresses, [*zookeeper.members, kafka, *cluster.members])
    status()


@app.command()
def down() -> None:
    """Stop all services by their process ids, and delete their data. Does nothing if no service runs."""
    background.stop_all(_FOLDER)
    print("The services have ended.")


@app.command()
def status() -> None:
    """Print the running services, and how to use them. Exit code 1 if not all of them run."""
    services = background.load_record(_FOLDER)
    if services is None or not services.pids:
        print("No services run: make services-up starts them.")
        raise typer.Exit(1)
    print(_USE.format(**services.addresses, folder=_FOLDER), end="")
    if ended := background.list_exited(_FOLDER):
        print(f"These have ended: {', '.join(ended)}", file=sys.stderr)
        raise typer.Exit(1)


def main() -> None:
    """Run one command, while holding the lock of this machine's services."""
    _FOLDER.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(_FOLDER.with_suffix(".lock"))
    try:
        lock.acquire_exclusive(_WAIT_S)
        app()
    except (ServiceError, TimeoutError) as error:
        sys.exit(f"services: {error}")


if __name__ == "__main__":
    main()
