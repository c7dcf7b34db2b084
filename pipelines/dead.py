"""`slotstream dead list|show|export|redrive`: their command lines, and what they have in common."""

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from slotstream.pipelines.dead_words import parse_place, parse_time
from slotstream.schemas.error_codes import ERROR_CODES, unknown_code

if TYPE_CHECKING:
    from slotstream.operators.kafka.letter import LetterFilter

__all__ = ["add_dead", "filter_of"]

_DONE = {0: "done", 1: "failed: the message says what", 2: "command line or configuration do not fit"}
_GONE = {141: "who reads the output has gone, as in `... | head -1`; nothing is said"}
_REDRIVE = {0: "done, also when there is nothing to do", 1: "failed, or the topic refuses some letters", 2: _DONE[2]}

Parsed = TypeVar("Parsed")
MakeCommand = Callable[[Any, str, str, str, Mapping[int, str]], argparse.ArgumentParser]
"""(sub-parsers, name, what it does, more and examples, exit codes) to a parser with --debug."""


def filter_of(options: argparse.Namespace) -> "LetterFilter":
    """The filter that the command line asks for."""
    from slotstream.operators.kafka.letter import LetterFilter  # noqa: PLC0415

    return LetterFilter(frozenset(options.code or ()), options.stage, options.since, options.until, options.schema_id)


def add_dead(commands: Any, make: MakeCommand) -> None:
    """Add `dead` and its four commands to the command line's parser."""
    brief = "look at dead letters, and put them back for another attempt"
    parser = commands.add_parser("dead", help=brief, description=brief[0].upper() + brief[1:] + ".")
    inner = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_list(inner, make)
    _add_show(inner, make)
    _add_export(inner, make)
    _add_redrive(inner, make)


def _add_list(commands: Any, make: MakeCommand) -> None:
    command = make(
        commands,
        "list",
        "count the dead letters by error code, and list the newest",
        """\
        Shows no record text. `slotstream errors CODE` tells what a code means and what to do.

        examples:
          slotstream dead list --config my.yaml
          slotstream dead list --config my.yaml --code json_invalid --since 2h
        """,
        _DONE | _GONE,
    )
    _add_filters(command, limit="list so many, the newest (default: 20)", default=20)
    command.set_defaults(command=_list)


def _add_show(commands: Any, make: MakeCommand) -> None:
    command = make(
        commands,
        "show",
        "show one dead letter, its value read as far as it can be",
        """\
        THIS SHOWS RECORD TEXT: key, headers and value. That is what it is for; mind who sees your terminal and its log.
        ORIGIN is where the record was read, TOPIC[PARTITION]@OFFSET (the dead topic is searched for it), or where the
        letter lies, PARTITION@OFFSET of the dead topic (found at once). The byte where reading stops is marked.

        examples:
          slotstream dead show --config my.yaml 'tickets[0]@17'
          slotstream dead show --config my.yaml 2@5
        """,
        _DONE | _GONE,
    )
    _add_config(command)
    command.add_argument(
        "origin", metavar="ORIGIN", type=_place, help="which record; quote it, for [ means much to a shell"
    )
    command.set_defaults(command=_show)


def _add_export(commands: Any, make: MakeCommand) -> None:
    command = make(
        commands,
        "export",
        "write dead letters to a file, one JSON object a line",
        """\
        Each line has everything: origin, code, stage, attempt, times, and key, value and header values as base64.
        THE FILE HOLDS RECORD TEXT; only its owner may read it. A file that exists is not overwritten.

        examples:
          slotstream dead export --config my.yaml --out letters.jsonl
          slotstream dead export --config my.yaml --out bad.jsonl --stage decode --since 2026-11-29
        """,
        _DONE,
    )
    _add_filters(command, limit="write so many, the first of the topic (default: all)", default=None)
    command.add_argument("--out", metavar="FILE", type=Path, required=True, help="file to write")
    command.set_defaults(command=_export)


def _add_redrive(commands: Any, make: MakeCommand) -> None:
    command = make(
        commands,
        "redrive",
        "put dead letters back for another attempt",
        """\
        Writes the records of the chosen letters to the topic INPUT.redrive, which `slotstream run` reads as well: they
        are decided under their first ids, with the next attempt. Without --yes nothing is written, and you see what
        would be. What lies on INPUT.redrive already is not put there a second time. Letters stay on the dead topic.

        examples:
          slotstream dead redrive --config my.yaml --code state_field_missing
          slotstream dead redrive --config my.yaml --code state_field_missing --yes
        """,
        _REDRIVE,
    )
    _add_filters(command, limit="put back so many, the first of the topic (default: all)", default=None)
    command.add_argument("--yes", action="store_true", help="write; without it this is a dry run")
    command.add_argument(
        "--create-topic", action="store_true", help="with --yes: create INPUT.redrive if it is missing"
    )
    command.add_argument("--again", action="store_true", help="also what was redriven already, as one more attempt")
    command.add_argument(
        "--force", action="store_true", help="also records whose key has a newer record on a compacted output topic"
    )
    command.set_defaults(command=_redrive)


def _add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", type=Path, required=True, help="configuration, YAML")


def _add_filters(command: argparse.ArgumentParser, *, limit: str, default: int | None) -> None:
    _add_config(command)
    command.add_argument(
        "--code", metavar="C", type=_code, action="append", help="error code; may be given several times"
    )
    command.add_argument("--stage", choices=("decode", "decide", "encode", "write"), help="where it went wrong")
    command.add_argument("--since", metavar="T", type=_time, help="dead from then on: 2h, 3d, 2026-11-29T10:00 (UTC)")
    command.add_argument("--until", metavar="T", type=_time, help="dead before then")
    command.add_argument("--schema-id", metavar="N", type=_count, help="schema id of the value")
    command.add_argument("--limit", metavar="N", type=_count, default=default, help=limit)


def _time(text: str) -> int:
    return _argument(lambda: parse_time(text, time.time()))


def _place(text: str) -> tuple[str, int, int]:
    return _argument(lambda: parse_place(text))


def _code(text: str) -> str:
    if text not in ERROR_CODES:
        raise argparse.ArgumentTypeError(unknown_code(text))
    return text


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number of 0 or more is needed, got {text!r}")
    return int(text)


def _argument(parse: Callable[[], Parsed]) -> Parsed:
    try:
        return parse()
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# Imports stand in the commands: the configuration brings Beam along, and nobody should wait for it to read --help.


def _list(options: argparse.Namespace) -> int:
    from slotstream.pipelines.dead_list import list_letters  # noqa: PLC0415

    return list_letters(options.config, filter_of(options), limit=options.limit)


def _show(options: argparse.Namespace) -> int:
    from slotstream.pipelines.dead_show import show_letter  # noqa: PLC0415

    return show_letter(options.config, options.origin)


def _export(options: argparse.Namespace) -> int:
    from slotstream.pipelines.dead_export import export_letters  # noqa: PLC0415

    return export_letters(options.config, filter_of(options), options.out, limit=options.limit)


def _redrive(options: argparse.Namespace) -> int:
    from slotstream.pipelines.dead_redrive import redrive_letters  # noqa: PLC0415

    return redrive_letters(
        options.config,
        filter_of(options),
        limit=options.limit,
        write=options.yes,
        create_topic=options.create_topic,
        again=options.again,
        force=options.force,
    )
