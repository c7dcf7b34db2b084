"""The command line teaches, and ends with the code that it documents."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from slotstream.pipelines import cli
from slotstream.pipelines.example import example_yaml
from slotstream.schemas import errors
from tests.pipelines.stream import COMMAND


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "codes"),
    [("decide", [0, 1, 2, 130, 141]), ("run", [0, 1, 2, 3, 4]), ("check", [0, 1, 2]), ("example", [0, 2, 141])],
)
def test_help_has_examples_and_the_exit_codes_of_the_command(
    command: str, codes: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(capsys, command)
    assert f"slotstream {command}" in text
    assert "example" in text
    listed = text.partition("exit codes:\n")[2].splitlines()
    assert [int(line.split()[0]) for line in listed] == codes
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{command}` \| (.*) \|$", readme, flags=re.MULTILINE)
    assert command == "example" or (row and [int(code) for code in re.findall(r"(?:^|[,;] )(\d+) ", row[1])] == codes)


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"slotstream {version('slotstream')}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys)
    for command in ("decide", "run", "check", "example", "dead", "errors"):
        assert f"    {command} " in text


def test_every_error_has_a_documented_exit_code() -> None:
    named = [getattr(errors, name) for name in errors.__all__ if name != "Stage"]
    classes: list[type[errors.SlotstreamError]] = named
    assert {each.exit_code for each in classes} <= {1, 2, 3, 4}


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["run"], ["decide"]])
def test_a_wrong_command_line_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: slotstream" in capsys.readouterr().err


def test_the_example_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["example"]) == 0
    assert capsys.readouterr().out == example_yaml()


def test_help_does_not_wait_for_beam_or_vllm() -> None:
    code = (
        "import sys\nfrom slotstream.pipelines import cli\n"
        "try: cli.main(['run', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit(any(name in sys.modules for name in ('apache_beam', 'vllm', 'torch', 'kafka')))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_debug_shows_the_traceback_and_nothing_else_does() -> None:
    def ended(*more: str) -> str:
        arguments = [str(COMMAND), "run", "--config", "no-such-file", *more]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        return done.stderr

    assert "Traceback" not in ended()
    assert "slotstream: configuration no-such-file: cannot be read" in ended()
    assert "Traceback" in ended("--debug")


# How the process ends.

ENDING = """
import atexit, sys, threading
from slotstream.pipelines import cli

class Garbage:
    def __del__(self, write=sys.stderr.write):
        write("interpreter's end\\n")

def main():
    sys.garbage = Garbage()
    atexit.register(lambda: print("hook", file=sys.stderr))
    threading.Thread(target=lambda: (threading.main_thread().join(), print("thread"))).start()
    print("x" * 1_000_000)
    {ending}

cli.main = main
cli.command_line()
"""


@pytest.mark.parametrize(
    ("ending", "code", "told"),
    [
        ("return 0", 0, "hook\n"),
        ("return 3", 3, "hook\n"),
        ("sys.exit(2)", 2, "hook\n"),
        ("sys.exit()", 0, "hook\n"),
        ("raise ZeroDivisionError", 1, "ZeroDivisionError\nhook\n"),
    ],
)
def test_the_process_ends_with_its_code_and_all_its_output_but_without_the_interpreters_end(
    ending: str, code: int, told: str
) -> None:
    script = ENDING.replace("{ending}", ending)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert done.stdout.split() == ["x" * 1_000_000, "thread"]
    assert done.stderr.endswith(told)
    assert "interpreter's end" not in done.stderr


def test_an_output_whose_reader_has_gone_ends_it_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stdout:
        done = subprocess.run([str(COMMAND), "example"], stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is not there: nothing stands for a full disk")
def test_an_output_that_takes_no_more_is_told() -> None:
    with open("/dev/full", "wb") as stdout:
        done = subprocess.run([str(COMMAND), "example"], stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"slotstream: [Errno 28] No space left on device\n")


def test_an_interrupted_decide_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("slotstream.pipelines.decide_lines.decide_files", interrupted)
    assert cli.main(["decide", "any.yaml"]) == 130
    assert "slotstream: interrupted" in capsys.readouterr().err
