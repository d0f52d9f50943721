"""Kafka: one broker that is its own controller (KRaft)."""

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from services.jvm import java_command
from services.process import HOST, Process, ServiceError, free_port

_HEAP_MB = 256
_FORMAT_S = 120.0
_ANSWER_S = 2.0
_TOPIC_S = 30.0


class Kafka(Process):
    """A broker at ``bootstrap``. ``settings`` override the settings in the code below.

    Topics are not created automatically (``auto.create.topics.enable`` is false). Kafka's internal topics are small and
    have one replica.
    """

    def __init__(self, folder: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.bootstrap = f"{HOST}:{self.port}"
        controller = f"{HOST}:{free_port()}"
        values = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(folder / "data"),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # A killed broker can register again only when its session has ended. The default of 9 s is too long.
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
            # An idle controller writes no records. By default, this takes a third of the time of an idle broker.
            "metadata.max.idle.interval.ms": "0",
            # The default of 128 MiB is half of this heap.
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
            "log.cleaner.threads": "1",
            "num.io.threads": "2",
            "num.network.threads": "2",
        } | dict(settings or {})
        self._settings = folder / "server.properties"
        folder.mkdir(parents=True, exist_ok=True)
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        command = java_command("kafka.Kafka", str(self._settings), heap_mb=_HEAP_MB)
        super().__init__("kafka", command, folder, self._answers, start_s=120.0)

    def launch(self) -> None:
        """Start the broker, after formatting its storage the first time. It is ready a few seconds later."""
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()
        super().launch()

    def make_topic(self, name: str, partitions: int = 4) -> None:
        """Create a topic. Raises ServiceError."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
                future.result(_TOPIC_S)
        except KafkaException as error:
            raise ServiceError(f"topic {name} could not be created: {error}") from error

    def _format(self) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        tool = ("format", f"--cluster-id={cluster_id}", f"--config={self._settings}")
        command = java_command("kafka.tools.StorageTool", *tool, heap_mb=_HEAP_MB)
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_S, check=False)
        if done.returncode:
            raise ServiceError(f"Kafka's storage could not be created in {self.folder}:\n{done.stdout}\n{done.stderr}")

    def _answers(self) -> bool:
        """Return whether the broker accepts clients and leads all of its partitions."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 1000})
        try:
            metadata = admin.list_topics(timeout=_ANSWER_S)
        except KafkaException:
            return False
        leaders = [part.leader for topic in metadata.topics.values() for part in topic.partitions.values()]
        return 1 in metadata.brokers and all(leader == 1 for leader in leaders)
