"""The local stack as a user meets it: the command line, loopback only, kill and restart, and life without Maven."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from deploy.local import maven, stack
from deploy.local.broker import LocalBroker, local_kafka
from deploy.local.service import LOOPBACK, StartError

ROOT = Path(__file__).resolve().parents[3]


def produce(broker: LocalBroker, topic: str, value: bytes) -> None:
    producer: Any = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send(topic, value).get(10)
    producer.close()


def values(broker: LocalBroker, topic: str, count: int) -> list[bytes]:
    consumer: Any = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    found = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return found


def listening_addresses(root: psutil.Process) -> set[str]:
    addresses = set()
    for process in root.children(recursive=True):
        connections = process.net_connections(kind="inet")
        addresses |= {c.laddr.ip.removeprefix("::ffff:") for c in connections if c.status == psutil.CONN_LISTEN}
    return addresses


@pytest.mark.broker
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_restarted_broker_has_its_data_and_its_port(kafka_broker: LocalBroker, topic: Any, end: str) -> None:
    if end == "kill" and not kafka_broker.durable:
        pytest.skip("noida-db loses its last second at a kill")
    name, bootstrap = topic(), kafka_broker.bootstrap
    produce(kafka_broker, name, b"before")
    getattr(kafka_broker, end)()
    kafka_broker.restart()
    produce(kafka_broker, name, b"after")
    assert values(kafka_broker, name, 2) == [b"before", b"after"]
    assert kafka_broker.bootstrap == bootstrap


@pytest.mark.broker
def test_two_brokers_stand_side_by_side(kafka_broker: LocalBroker) -> None:
    with local_kafka(kind="noida") as other:
        assert other.bootstrap != kafka_broker.bootstrap
        other.create_topics({"only-there": 1})
        produce(other, "only-there", b"x")
        assert values(other, "only-there", 1) == [b"x"]


@pytest.mark.broker
@pytest.mark.parametrize("broker", ["noida", pytest.param("apache", marks=[pytest.mark.registry, pytest.mark.slow])])
def test_the_command_line_prints_where_things_are_and_stops_at_ctrl_c(broker: str) -> None:
    if broker == "apache" and not maven.available():
        pytest.skip("no Maven: Apache Kafka and the schema registry come through it")
    command = [sys.executable, str(ROOT / "deploy/local/stack.py"), "up", "--broker", broker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        children = psutil.Process(process.pid).children(recursive=True)
        addresses = listening_addresses(psutil.Process(process.pid))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert re.match(rf"kafka +{LOOPBACK}:\d+ ", lines[0])
    assert re.match(
        rf"registry +http://{LOOPBACK}:\d+/apis/ccompat/v7 " if broker == "apache" else "registry +none", lines[1]
    )
    assert addresses == {LOOPBACK}
    assert children
    assert not any(child.is_running() for child in children)


@pytest.mark.broker
def test_without_maven_the_stack_is_noida_alone_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with stack.local_stack(cache=tmp_path) as local:
        assert (local.broker.kind, local.registry) == ("noida", None)
    assert "Maven is not on the path: using noida-db" in capfd.readouterr().err


def test_noida_refuses_what_only_kafka_can() -> None:
    with pytest.raises(ValueError, match="use kind='apache'"), local_kafka(kind="noida", properties={"a": "b"}):
        pass


@pytest.mark.broker
def test_a_setting_that_kafka_refuses_is_shown_with_its_log() -> None:
    if not maven.available():
        pytest.skip("no Maven: Apache Kafka comes through it")
    settings = {"num.io.threads": "none"}
    with pytest.raises(StartError, match=r"num\.io\.threads"), local_kafka(kind="apache", properties=settings):
        pass


@pytest.mark.broker
@pytest.mark.slow
def test_a_broker_can_ask_for_a_password() -> None:
    if not maven.available():
        pytest.skip("no Maven: Apache Kafka comes through it")
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="pw"'
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} user_ann="pw";',
    }
    client = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "ann"}
    with local_kafka(
        protocol="SASL_PLAINTEXT", properties=settings, client=client | {"sasl_plain_password": "pw"}
    ) as broker:
        broker.create_topics({"t": 1})
        stranger: Any = KafkaProducer
        with pytest.raises(KafkaError):
            stranger(
                bootstrap_servers=broker.bootstrap, **client, sasl_plain_password="guess", bootstrap_timeout_ms=2000
            )
