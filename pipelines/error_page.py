"""`slotstream errors`: the page of every error, docs/errors.md, made from the error classes and the table of codes."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from slotstream.schemas import errors
from slotstream.schemas.error_codes import ERROR_CODES, unknown_code

if TYPE_CHECKING:
    from slotstream.pipelines.dead import MakeCommand

__all__ = ["add_errors", "error_page", "error_section"]


def error_section(code: str) -> str:
    """The section of one code, Markdown.

    Raises:
        KeyError: there is no such code.
    """
    told = ERROR_CODES[code]
    attempt = "may help by itself" if told.error.retriable else "helps only after something has changed"
    return (
        f"### {code}\n\n"
        f"`{told.error.__name__}`, stage {told.error.stage}; another attempt {attempt}.\n\n"
        f"- **Cause:** {told.cause}\n"
        f"- **The record:** {told.happened}\n"
        f"- **What to do:** {told.advice}\n"
    )


def error_page() -> str:
    """The whole of docs/errors.md."""
    rows = "".join(f"| `{kind.__name__}` | {_sentence(kind)} | {kind.exit_code} |\n" for kind in _stopping().values())
    sections = "\n".join(error_section(code) for code in ERROR_CODES)
    return (
        "# Errors\n\n"
        "Printed by `slotstream errors`; `slotstream errors CODE` prints one section.\n\n"
        "## Codes of dead letters\n\n"
        "A record that cannot be decided goes to the dead topic with its own bytes, and its neighbours go on. The code "
        "is in the header `slotstream.error.code`.\n\n"
        f"{sections}\n"
        "## Errors that stop or pause a run\n\n"
        "No record is blamed for these and none goes to the dead topic.\n\n"
        "| error | meaning | exit code, when it ends the command |\n|---|---|---|\n"
        f"{rows}"
    )


def _stopping() -> dict[str, type[errors.SlotstreamError]]:
    """The errors that stop or pause a run, by name."""
    kinds = [getattr(errors, name) for name in errors.__all__ if name != "Stage"]
    return {
        kind.__name__: kind
        for kind in kinds
        if not issubclass(kind, errors.RecordError) and kind is not errors.SlotstreamError
    }


def _sentence(kind: type[errors.SlotstreamError]) -> str:
    return " ".join((kind.__doc__ or "").split())


def add_errors(commands: Any, make: "MakeCommand") -> None:
    """Add `errors` to the command line's parser."""
    command = make(
        commands,
        "errors",
        "tell what an error code of a dead letter means, and what to do",
        """\
        Without a code: all of them, as Markdown (docs/errors.md).

        examples:
          slotstream errors state_field_missing
          slotstream errors > errors.md
        """,
        {0: "done", 2: "there is no such code", 141: "who reads the output has gone; nothing is said"},
    )
    command.add_argument("code", metavar="CODE", nargs="?", help="as in the header slotstream.error.code")
    command.set_defaults(command=_errors)


def _errors(options: argparse.Namespace) -> int:
    code: str | None = options.code
    if (kind := _stopping().get(code or "")) is not None:
        sys.stdout.write(
            f"### {code}\n\nStops or pauses a run; no record is blamed. {_sentence(kind)}\n\n"
            f"Exit code, when it ends the command: {kind.exit_code}.\n"
        )
        return 0
    if code is not None and code not in ERROR_CODES:
        raise errors.ConfigError(unknown_code(code, [*ERROR_CODES, *_stopping()]))
    sys.stdout.write(error_page() if code is None else error_section(code))
    return 0
