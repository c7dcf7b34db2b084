"""What Maven brings is fetched once, whole or not at all; `mvn` is a script here, the real one serves the suites."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.local import maven

ROOT = Path(__file__).resolve().parents[3]

# Writes one file into the folder of -Dout=..., slowly, and one line to a list of its calls.
FAKE_MVN = """#!/bin/sh
echo call >> "$(dirname "$0")/calls"
for word in "$@"; do case "$word" in -Dout=*) out="${word#-Dout=}" ;; esac; done
mkdir -p "$out"
sleep 0.3
echo jar > "$out/kafka.jar"
"""

FETCH = "import sys; sys.path.append(sys.argv[1]); from pathlib import Path; from deploy.local import maven;"
FETCH += "print(sorted(p.name for p in maven.kafka_jars(Path(sys.argv[2])).iterdir()))"


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that stands first on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def put_mvn(folder: Path, text: str) -> None:
    (folder / "mvn").write_text(text)
    (folder / "mvn").chmod(0o755)


def test_many_processes_that_ask_at_once_fetch_once(bin_folder: Path, tmp_path: Path) -> None:
    put_mvn(bin_folder, FAKE_MVN)
    command = [sys.executable, "-c", FETCH, str(ROOT), str(tmp_path / "cache")]
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(subprocess.check_output, command, text=True, stderr=subprocess.DEVNULL) for _ in range(4)]
        assert {run.result() for run in runs} == {"['kafka.jar']\n"}
    assert (bin_folder / "calls").read_text() == "call\n"


def test_a_fetch_that_was_cut_off_is_done_again(bin_folder: Path, tmp_path: Path) -> None:
    put_mvn(bin_folder, FAKE_MVN)
    (tmp_path / "kafka.partial").mkdir()
    (tmp_path / "kafka.partial" / "half.jar").touch()
    assert [path.name for path in maven.kafka_jars(tmp_path).iterdir()] == ["kafka.jar"]


def test_a_failing_maven_is_reported_with_its_last_lines_and_leaves_no_cache(bin_folder: Path, tmp_path: Path) -> None:
    put_mvn(bin_folder, "#!/bin/sh\necho could not resolve kafka\nexit 3\n")
    with pytest.raises(maven.FetchError, match=r"exit code 3(.|\n)*could not resolve kafka"):
        maven.kafka_jars(tmp_path)
    with pytest.raises(maven.FetchError):  # and again: the failure was not kept
        maven.kafka_jars(tmp_path)


def test_a_missing_maven_is_reported_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not maven.available(tmp_path)
    with pytest.raises(maven.FetchError, match="install Maven"):
        maven.registry_app(tmp_path)


def test_a_filled_cache_needs_no_maven(bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_mvn(bin_folder, FAKE_MVN)
    cache = tmp_path / "cache"
    jars = maven.kafka_jars(cache)
    maven.registry_app(cache)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert maven.available(cache)
    assert maven.kafka_jars(cache) == jars
