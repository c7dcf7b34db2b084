"""The command line teaches, and ends with the code that it documents."""

import subprocess
import sys

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


@pytest.mark.parametrize("command", ["decide", "run", "check", "example"])
def test_help_has_examples_and_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, command)
    assert f"slotstream {command}" in text
    assert "example" in text
    for code in range(5):
        assert f"  {code}  " in text


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys)
    for command in ("decide", "run", "check", "example"):
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
