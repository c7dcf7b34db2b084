"""Fixtures every suite shares: one real broker, one real registry, the public test data, topics with own names.

What a machine cannot run is skipped with the reason, and the end of the run names all of it.
"""

import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# For `deploy`, which is scripts and not an installed package; last, so that nothing here hides an installed package.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from deploy.local import maven
from deploy.local.broker import LocalBroker, local_kafka
from deploy.local.registry import local_registry

__all__ = ["TopicFactory"]

TopicFactory = Callable[..., str]

# A machine with two cores and a broker on them may stall any example: how long one takes proves nothing.
settings.register_profile("slotstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("slotstream")

BROKER = pytest.StashKey[LocalBroker]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--broker noida` runs the suites as on a machine without Maven."""
    parser.addoption(
        "--broker", choices=("apache", "noida"), help="broker of the tests (default: Apache Kafka where Maven is there)"
    )


def _broker_kind(config: pytest.Config) -> str:
    return config.getoption("--broker") or ("apache" if maven.available() else "noida")


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config) -> Iterator[LocalBroker]:
    """The session's broker: `.bootstrap`, `.kill()`, `.stop()`, `.restart()`, `.kind`, `.durable`.

    A test that kills it may leave it down: it is restarted before the next test.
    """
    with local_kafka(kind="apache" if _broker_kind(pytestconfig) == "apache" else "noida") as broker:
        pytestconfig.stash[BROKER] = broker
        yield broker
        del pytestconfig.stash[BROKER]  # from here on it is down for good


@pytest.fixture(scope="session")
def schema_registry(pytestconfig: pytest.Config) -> Iterator[str]:
    """URL of the session's Confluent-compatible schema registry (Apicurio)."""
    if _broker_kind(pytestconfig) == "noida":
        pytest.skip("no Maven: the schema registry (Apicurio) comes through it")
    with local_registry() as registry:
        yield registry.url


@pytest.fixture
def topic(kafka_broker: LocalBroker, request: pytest.FixtureRequest) -> TopicFactory:
    """`topic("in", partitions=2, configs={...})` creates a topic that no other test uses, and returns its name."""
    return _topic_factory(kafka_broker, request.node.name)


def _topic_factory(broker: LocalBroker, test: str) -> TopicFactory:
    word = "".join(letter if letter.isalnum() else "-" for letter in test)[:80]

    def create(name: str = "topic", *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        unique = f"{word}-{next(_numbers)}-{name}"
        broker.create_topics({unique: partitions}, configs)
        return unique

    return create


_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def test_data() -> Path:
    """Folder of the public labelled data (banking77/, nlupp/)."""
    folder = os.environ.get("SLOTSTREAM_TEST_DATA")
    if not folder:
        pytest.skip("SLOTSTREAM_TEST_DATA is not set: it names the folder that holds banking77/ and nlupp/")
    path = Path(folder)
    if not (path / "banking77" / "test.csv").is_file():
        pytest.fail(f"SLOTSTREAM_TEST_DATA is {folder}, and there is no banking77/test.csv in it")
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The engine's suites go last: they take minutes, and a mistake elsewhere should show before."""
    items.sort(key=lambda item: item.get_closest_marker("engine") is not None)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A broker that a test left down comes up again."""
    broker = item.config.stash.get(BROKER, None)
    if broker is not None and not broker.running:
        broker.restart()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names what this run skipped, by reason."""
    skipped = defaultdict(list)
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        skipped[reason.removeprefix("Skipped: ")].append(report.nodeid)
    if skipped:
        terminalreporter.section("not run on this machine")
    for reason, tests in skipped.items():
        terminalreporter.line(f"{len(tests)} skipped: {reason}")
        for test in tests:
            terminalreporter.line(f"    {test}")
