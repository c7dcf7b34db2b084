"""The local stack: one Kafka broker and, where Maven is there, one schema registry.

python deploy/local/stack.py up        starts both, prints where they are, stops them at Ctrl-C
"""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

if __name__ == "__main__":
    # Python puts this script's own folder first: a module here would then hide an installed package of its name.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from deploy.local import maven
from deploy.local.broker import BrokerKind, LocalBroker, local_kafka
from deploy.local.registry import LocalRegistry, local_registry
from deploy.local.service import StartError

__all__ = ["LocalStack", "local_stack", "main"]


@dataclass(frozen=True, slots=True)
class LocalStack:
    """What is up. `registry` is None where there is no Maven: use a schema file instead."""

    broker: LocalBroker
    registry: LocalRegistry | None


@contextmanager
def local_stack(*, kind: BrokerKind | None = None, cache: Path = maven.CACHE) -> Iterator[LocalStack]:
    """Broker and registry for the length of a `with` block, both answering when the block begins.

    kind: "apache" (Kafka 4.3 and Apicurio 3.3), "noida" (noida-db and no registry), or None: "apache" where Maven or
    its cache is there, else "noida", said on stderr.

    Raises StartError when a server does not come up, FetchError when Maven fails.
    """
    with ExitStack() as stack:
        broker = stack.enter_context(local_kafka(kind=kind, cache=cache))
        registry = stack.enter_context(local_registry(cache=cache)) if broker.kind == "apache" else None
        yield LocalStack(broker, registry)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python deploy/local/stack.py", description="A local Kafka and schema registry."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start both in the foreground; Ctrl-C stops them and removes their data")
    up.add_argument(
        "--broker",
        choices=("apache", "noida"),
        help="apache: Kafka 4.3 and Apicurio 3.3 through Maven; noida: noida-db, no registry (default: what is there)",
    )
    options = parser.parse_args(arguments)
    stop = threading.Event()

    def stop_on(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    try:
        with local_stack(kind=options.broker) as stack:
            signal.signal(signal.SIGINT, stop_on)
            signal.signal(signal.SIGTERM, stop_on)
            print(f"kafka     {stack.broker.bootstrap}   log: {stack.broker.log}")
            if stack.registry is not None:
                print(f"registry  {stack.registry.url}   log: {stack.registry.log}")
            else:
                print("registry  none (it comes through Maven): use a schema file")
            print("Ctrl-C stops the stack and removes its data.", flush=True)
            stop.wait()
    except (StartError, maven.FetchError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before everything was up
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
