"""The command `slotstream`."""

import argparse
import atexit
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent
from typing import NoReturn

from slotstream.pipelines.dead import add_dead
from slotstream.pipelines.error_page import add_errors
from slotstream.pipelines.logs import log_to_stderr
from slotstream.pipelines.shutdown import Shutdown, StoppedAtStart
from slotstream.schemas.errors import SlotstreamError

__all__ = ["command_line", "main"]

EXIT_CODES = {
    0: "done",
    1: "failed: the message says what; what was committed is safe, start again",
    2: "command line, configuration, decision schema or model do not fit: nothing was started",
    3: "the schema registry refuses the output schema",
    4: "the dead-letter limit is reached: nearly every record fails",
    130: "interrupted (Ctrl-C)",
    141: "who reads the output has gone, as in `... | head -1`; nothing is said",
}
CHECK_CODES = {
    0: "no error (there may be warnings)",
    1: "at least one error, a configuration that cannot be read among them",
    2: "the command line is wrong; nothing was checked",
}


def command_line() -> NoReturn:
    """The process: `main`, and an end that does not wait for the interpreter's.

    With Beam, vLLM and torch loaded, Python takes apart its modules and collects its garbage for 2 s, on a busy machine
    for 13, when all is committed, flushed and closed. So the last exit hook ends the process. It is the last because it
    is the first to be registered: threads have been joined and all other hooks have run by then.
    """
    code = 1  # of an exception that nobody tells: Python prints it

    def end() -> None:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    atexit.register(end)
    try:
        code = main()
    except SystemExit as told:  # argparse's: --help, or a wrong command line
        code = told.code if isinstance(told.code, int) else int(told.code is not None)
        raise
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run the command; returns the exit code. Only data goes to stdout."""
    options = _parser().parse_args(arguments)
    log_to_stderr(debug=options.debug)
    try:
        code = int(options.command(options))
        sys.stdout.flush()  # here, where a reader that has gone is known
        return code
    except SlotstreamError as error:
        if options.debug:
            logging.getLogger("slotstream").exception("%s", type(error).__name__)
        print(f"slotstream: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # `slotstream decide ... | head`
        if options.command is _run:
            raise  # it writes nothing to stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as the shell tells of a program that this ends by its signal, SIGPIPE
    except OSError as error:
        if options.debug or options.command is _run:
            raise
        print(f"slotstream: {error}", file=sys.stderr)  # the output: a full disk, say
        return 1
    except KeyboardInterrupt:
        print("slotstream: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slotstream",
        description="Typed decisions with probabilities for every record, read off a DiffusionGemma canvas.",
        epilog=dedent(
            """\
            a first session:
              slotstream decide questions.yaml --model DIR --in examples.jsonl    try a decision schema
              slotstream example > my.yaml                            then name your broker, topics and schema in it
              slotstream check --config my.yaml                       is everything there before records flow?
              slotstream run --config my.yaml                         decide every record of a Kafka topic
              slotstream dead list --config my.yaml                   what could not be decided, and why

            """
        )
        + _codes(EXIT_CODES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"slotstream {version('slotstream')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_decide(commands)
    _add_run(commands)
    _add_check(commands)
    _add_example(commands)
    add_dead(commands, _command)
    add_errors(commands, _command)
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    brief: str,
    told: str,
    codes: Mapping[int, str],
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=brief,
        description=brief[0].upper() + brief[1:] + ".",
        epilog=dedent(told) + "\n" + _codes(codes),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--debug", action="store_true", help="log everything, and show tracebacks")
    return command


def _codes(codes: Mapping[int, str]) -> str:
    return "exit codes:\n" + "".join(f"  {code:<3}  {meaning}\n" for code, meaning in codes.items())


def _only(*codes: int) -> dict[int, str]:
    return {code: EXIT_CODES[code] for code in codes}


def _add_decide(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _command(
        commands,
        "decide",
        "ask a decision schema about JSON lines, without Kafka",
        """\
        Each input line is one object, a record's fields. Each output line answers it, in the same order:
          {"route": "decided", "labels": {"urgent": {"value": true, "probability": 0.97, "mass": 0.99, "margin": 0.94,
           "entropy": 0.13, "probabilities": {"yes": 0.97, "no": 0.03}}}, "reasons": [], "error": null}
        A line that cannot be decided has the route "dead" and an error with code and message. So has a blank line
        (line_blank): line N of the output always belongs to line N of the input.

        examples:
          echo '{"text": "my card was stolen"}' | slotstream decide tickets.yaml
          slotstream decide tickets.yaml --model ./my-checkpoint --in records.jsonl --out answers.jsonl
        """,
        _only(0, 1, 2, 130, 141),
    )
    command.add_argument("schema", metavar="SCHEMA", type=Path, help="decision schema, YAML or JSON")
    command.add_argument("--model", metavar="DIR", help="DiffusionGemma checkpoint (default: the packaged small one)")
    command.add_argument("--in", dest="input", metavar="FILE", type=Path, help="read from FILE instead of stdin")
    command.add_argument("--out", dest="output", metavar="FILE", type=Path, help="write to FILE instead of stdout")
    command.add_argument(
        "--engine",
        choices=("vllm", "transformers", "instant"),
        default="vllm",
        help="what runs the model; instant is a fake for trying the plumbing (default: vllm)",
    )
    command.set_defaults(command=_decide)


def _add_run(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _command(
        commands,
        "run",
        "decide every record of a Kafka topic until stopped",
        """\
        SIGTERM or Ctrl-C: records in flight are finished and committed, then it exits with 0; a second signal exits at
        once. Several runs with the same group share the topic's partitions. No record is lost; after a failure a record
        may be written again, with the same id.

        examples:
          slotstream run --config my.yaml
          slotstream run --config my.yaml --until-caught-up       a batch job: stops where the topic ends now
        """,
        _only(0, 1, 2, 3, 4),
    )
    command.add_argument("--config", metavar="FILE", type=Path, required=True, help="configuration, YAML")
    command.add_argument(
        "--until-caught-up", action="store_true", help="stop at the end offsets that the topic has at start"
    )
    command.set_defaults(command=_run)


def _add_check(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _command(
        commands,
        "check",
        "check everything that can be checked before records flow",
        """\
        One line a finding: ok, warn or error, what it is about, what was found, and what to do. Writes nothing, joins
        no group, loads no model weights without --engine. A broker that is not reached in 5 s is an error.

        examples:
          slotstream check --config my.yaml
          slotstream check --config my.yaml --engine              also starts the engine and reads a probe
        """,
        CHECK_CODES,
    )
    command.add_argument("--config", metavar="FILE", type=Path, required=True, help="configuration, YAML")
    command.add_argument("--engine", action="store_true", help="also start the engine and read a probe")
    command.set_defaults(command=_check)


def _add_example(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _command(
        commands,
        "example",
        "print a configuration with every setting, its default, and what it is for",
        """\
        example:
          slotstream example > my.yaml
        """,
        _only(0, 2, 141),
    )
    command.set_defaults(command=_example)


# Imports stand in the commands: Beam takes 3 s and vLLM 20 s, and nobody should wait for them to read --help.


def _decide(options: argparse.Namespace) -> int:
    from slotstream.operators.engines.config import EngineConfig  # noqa: PLC0415
    from slotstream.pipelines.decide_lines import decide_files  # noqa: PLC0415

    config = EngineConfig(kind=options.engine, model=options.model)
    decide_files(options.schema, config, source=options.input, target=options.output)
    return 0


def _run(options: argparse.Namespace) -> int:
    try:
        with Shutdown() as shutdown:
            from slotstream.pipelines.run import run  # noqa: PLC0415

            run(options.config, shutdown, until_caught_up=options.until_caught_up)
    except StoppedAtStart as signal:
        logging.getLogger(__name__).info("stopped by %s before the first record", signal)
    return 0


def _check(options: argparse.Namespace) -> int:
    from slotstream.pipelines.check import check  # noqa: PLC0415

    return check(options.config, with_engine=options.engine)


def _example(_options: argparse.Namespace) -> int:
    from slotstream.pipelines.example import example_yaml  # noqa: PLC0415

    sys.stdout.write(example_yaml())
    return 0
