"""The command lines of `dead` and `errors` teach, refuse what they do not know, and end with the documented codes."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slotstream.operators.kafka.letter import LetterFilter
from slotstream.pipelines import cli, dead
from slotstream.pipelines.error_page import error_page, error_section

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == code
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("dead list", [0, 1, 2, 141]),
        ("dead show", [0, 1, 2, 141]),
        ("dead export", [0, 1, 2]),
        ("dead redrive", [0, 1, 2]),
        ("errors", [0, 2, 141]),
    ],
)
def test_help_has_examples_and_the_exit_codes_of_the_command(
    command: str, codes: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(capsys, *command.split(), "--help", code=0)
    assert f"  slotstream {command}" in text.partition("examples:")[2]
    assert [int(line.split()[0]) for line in text.partition("exit codes:\n")[2].splitlines()] == codes
    rows = {row[0]: row[1] for row in re.findall(r"^\| `(dead .*|errors.*?)` \| (.*) \|$", README, flags=re.MULTILINE)}
    row = next(text for names, text in rows.items() if command.rsplit(maxsplit=1)[-1] in names)
    assert [int(code) for code in re.findall(r"(?:^|[,;] )(\d+) ", row)] == codes


def test_the_help_of_show_and_export_says_that_record_text_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert "THIS SHOWS RECORD TEXT" in told(capsys, "dead", "show", "--help", code=0)
    assert "THE FILE HOLDS RECORD TEXT" in told(capsys, "dead", "export", "--help", code=0)
    assert "Shows no record text" in told(capsys, "dead", "list", "--help", code=0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("dead", "COMMAND"),
        ("dead list", "--config"),
        ("dead list --config x --since yesterday", "a time is 2026-11-29"),
        ("dead list --config x --stage write-up", "invalid choice"),
        ("dead list --config x --code state_to_long", "did you mean state_too_long"),
        ("dead list --config x --limit -1", "a whole number of 0 or more is needed, got '-1'"),
        ("dead list --config x --schema-id seven", "a whole number of 0 or more is needed, got 'seven'"),
        ("dead show --config x", "ORIGIN"),
        ("dead show --config x tickets", "a record is named TOPIC[PARTITION]@OFFSET"),
        ("dead export --config x", "--out"),
        ("dead redrive --config x --force-all", "unrecognized arguments"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_says_what_is_wrong(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in told(capsys, *arguments.split(), code=2)


def test_a_configuration_that_cannot_be_read_ends_with_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "my.yaml")
    for rest in (["list"], ["show", "0@1"], ["export", "--out", str(tmp_path / "out")], ["redrive"]):
        assert cli.main(["dead", rest[0], "--config", missing, *rest[1:]]) == 2
        assert f"configuration {missing}: cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_filters_of_the_command_line_are_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def keep(options: Any) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(dead, "_redrive", keep)
    arguments = "dead redrive --config x --code json_invalid --code json_too_deep --stage decode --schema-id 7"
    span = ["--since", "1970-01-01T00:00:01Z", "--until", "1970-01-01T00:00:02Z"]
    assert cli.main([*arguments.split(), *span, "--yes", "--limit", "3"]) == 0
    assert dead.filter_of(seen[0]) == LetterFilter(
        frozenset({"json_invalid", "json_too_deep"}), "decode", 1_000, 2_000, 7
    )
    assert (seen[0].yes, seen[0].again, seen[0].force, seen[0].create_topic, seen[0].limit) == (
        True,
        False,
        False,
        False,
        3,
    )
    assert cli.main(["dead", "redrive", "--config", "x"]) == 0
    assert dead.filter_of(seen[1]) == LetterFilter()
    assert (seen[1].yes, seen[1].limit) == (False, None)


def test_errors_are_told_all_or_one_and_a_misspelt_code_gets_a_proposal(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["errors"]) == 0
    assert capsys.readouterr().out == error_page()
    assert cli.main(["errors", "state_empty"]) == 0
    assert capsys.readouterr().out == error_section("state_empty")
    assert cli.main(["errors", "state_emty"]) == 2
    assert "did you mean state_empty" in capsys.readouterr().err


def test_help_and_errors_do_not_wait_for_beam_or_kafka() -> None:
    code = (
        "import sys\nfrom slotstream.pipelines import cli\n"
        "try: cli.main(['dead', 'list', '--help'])\nexcept SystemExit: pass\n"
        "cli.main(['errors'])\n"
        "sys.exit(any(name in sys.modules for name in ('apache_beam', 'vllm', 'torch', 'kafka', 'pydantic')))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
