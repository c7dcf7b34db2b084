"""A server of the local stack answers when its block begins, and is gone afterwards whatever happens."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from deploy.local.service import LOOPBACK, Service, StartError, free_ports, scratch_dir

ROOT = Path(__file__).resolve().parents[3]

# A parent that starts a server, says where it is, and waits.
PARENT = """
import sys, time
sys.path.append(sys.argv[1])
from deploy.local.service import free_ports
from tests.deploy.local.test_service import web_server
port = free_ports(1)[0]
with web_server(port) as server:
    print(port, server.scratch, flush=True)
    time.sleep(600)
"""


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def web_server(port: int, **options: float) -> Service:
    command = [sys.executable, "-m", "http.server", "--bind", LOOPBACK, str(port)]
    return Service("web", command, ready=lambda: listens(port), scratch=scratch_dir("web"), **options)


def soon(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    """Whether the condition comes true before the time is over."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def test_a_server_answers_inside_its_block_and_is_gone_after(port: int) -> None:
    with web_server(port) as server:
        assert listens(port)
    assert not listens(port)
    assert not server.running
    assert not server.scratch.exists()


def test_an_error_inside_the_block_stops_the_server(port: int) -> None:
    with pytest.raises(ZeroDivisionError), web_server(port):
        _ = 1 / 0
    assert not listens(port)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_parent_that_is_ended_leaves_nothing_behind(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(ROOT)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        port, scratch = parent.stdout.readline().split()
        assert listens(int(port))
        parent.send_signal(number)
        parent.wait(10)
    assert soon(lambda: not listens(int(port)) and not Path(scratch).exists())


def test_a_guard_that_is_killed_takes_its_server_with_it(port: int) -> None:
    with web_server(port):
        # The suite's broker and registry have guards, too: this one was told the server's port.
        (guard,) = [child for child in psutil.Process().children() if str(port) in child.cmdline()]
        os.kill(guard.pid, signal.SIGKILL)
        assert soon(lambda: not listens(port))


def test_a_server_started_by_a_thread_outlives_the_thread(port: int) -> None:
    with web_server(port) as server:
        server.kill()
        thread = threading.Thread(target=server.start)
        thread.start()
        thread.join()
        # Twice what the guard needs to notice a death.
        assert not soon(lambda: not server.running, within_s=0.5)
        assert listens(port)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_an_ended_server_has_freed_its_port_and_can_start_again(port: int, end: str) -> None:
    with web_server(port) as server:
        for _ in range(3):
            getattr(server, end)()
            assert not listens(port)
            assert server.scratch.is_dir()
            server.start()
            assert listens(port)


def test_a_server_does_not_start_after_its_block(port: int) -> None:
    with web_server(port) as server:
        pass
    with pytest.raises(StartError, match="its data were removed"):
        server.start()


def test_a_server_that_ends_at_once_is_reported_with_its_log() -> None:
    scratch = scratch_dir("web")
    command = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    with pytest.raises(StartError, match=r"ended before it answered(.|\n)*no such thing"):
        Service("web", command, ready=lambda: False, scratch=scratch).__enter__()
    assert not scratch.exists()


def test_a_server_that_stays_silent_is_stopped_and_reported(port: int) -> None:
    command = [sys.executable, "-m", "http.server", "--bind", LOOPBACK, str(port)]
    with pytest.raises(StartError, match="did not answer within 1 s"):
        Service("web", command, ready=lambda: False, scratch=scratch_dir("web"), timeout_s=1).__enter__()
    assert not listens(port)


def test_free_ports_are_distinct_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < 32_768
