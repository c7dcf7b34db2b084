"""Fetches Kafka and Apicurio through Maven into a cache folder, once, however many processes ask at the same time."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["CACHE", "FetchError", "available", "kafka_jars", "registry_app"]

POM = Path(__file__).with_name("pom.xml")
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "local-stack"

KAFKA_GOAL = "dependency:copy-dependencies@kafka"
REGISTRY_GOAL = "dependency:unpack@registry"


class FetchError(Exception):
    """Maven could not bring what the local stack runs. Not a record's fault, nor the pipeline's."""


def available(cache: Path = CACHE) -> bool:
    """Whether real Kafka and Apicurio can be had: both are in the cache, or `mvn` is on the path to fetch them."""
    return shutil.which("mvn") is not None or all(_folder(cache, name).is_dir() for name in ("kafka", "registry"))


def kafka_jars(cache: Path = CACHE) -> Path:
    """Folder with Kafka's jars (43 MB), fetched if it is not there yet.

    Raises FetchError when Maven is missing or fails.
    """
    return _fetched("kafka", KAFKA_GOAL, cache)


def registry_app(cache: Path = CACHE) -> Path:
    """Folder with Apicurio Registry's `quarkus-run.jar` (168 MB), fetched if it is not there yet.

    Raises FetchError when Maven is missing or fails.
    """
    return _fetched("registry", REGISTRY_GOAL, cache)


def _folder(cache: Path, name: str) -> Path:
    """The cache folder of one download; its name carries the pom's hash, so that a changed pom fetches anew."""
    return cache / f"{name}-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def _fetched(name: str, goal: str, cache: Path) -> Path:
    folder = _folder(cache, name)
    if folder.is_dir():
        return folder
    # One lock for both downloads: Maven 3 does not share its own local repository between processes safely.
    with _lock(cache / "maven.lock"):
        if folder.is_dir():  # another process fetched it while this one waited
            return folder
        partial = cache / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        print(f"Fetching {name} through Maven into {folder} (once) ...", file=sys.stderr, flush=True)
        _maven(goal, partial)
        # The rename is what makes a fetch visible: a fetch that was cut off leaves only the .partial folder.
        partial.rename(folder)
    return folder


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds an exclusive lock between processes; the kernel drops it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _maven(goal: str, out: Path) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise FetchError(
            "mvn is not on the path: install Maven (Debian: apt-get install maven), or use broker 'noida'."
        )
    command = [mvn, "--batch-mode", "--quiet", "--file", str(POM), goal, f"-Dout={out}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise FetchError(f"mvn {goal} ended with exit code {done.returncode}; its last lines:\n{tail}")
