"""What is wrong with a decision schema, told to its author: place in the file, rule, what stands there, what to do."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from slotstream.schemas.question import ChoiceQuestion, NoulQuestion, ScoreQuestion, Thresholds
from slotstream.schemas.state import StateTemplate
from slotstream.schemas.strict_yaml import written

__all__ = ["schema_faults"]

_QUESTIONS: dict[str, type[BaseModel]] = {"noul": NoulQuestion, "choice": ChoiceQuestion, "score": ScoreQuestion}
_SECTIONS: dict[str, type[BaseModel]] = {"state": StateTemplate, "thresholds": Thresholds}

# What people write who know other tools, and no spelling checker finds.
_OTHER_WORDS = {
    **dict.fromkeys(("options", "choices", "labels", "levels", "values", "enum"), "criteria"),
    **dict.fromkeys(("question", "prompt", "description", "text"), "instructions"),
    **dict.fromkeys(("field", "column", "columns"), "fields"),
    "threshold": "thresholds",
}

_MUST_BE = {
    "string_type": "text",
    "dict_type": "a map",
    "model_type": "a map",
    "tuple_type": "a list",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "finite": "a number",
}


def schema_faults(error: ValidationError, whole: Mapping[str, Any], root: type[BaseModel]) -> list[str]:
    """One line a broken rule.

    Args:
        whole: what was validated as `root`, with the questions as a map.
    """
    return [_fault(fault, whole, root) for fault in error.errors()]


def _fault(fault: Any, whole: Mapping[str, Any], root: type[BaseModel]) -> str:
    path: list[Any] = []  # the keys as they stand in the file
    sections: list[type[BaseModel] | None] = []  # what each of them is a key of
    section: type[BaseModel] | None = root
    parts = iter(fault["loc"])
    for part in parts:
        if path == ["questions"]:  # pydantic counts questions and puts their type between; the file names them
            path.append(list(whole["questions"])[part])
            sections.append(None)
            section = _QUESTIONS.get(str(next(parts, "")))
        elif part != "[key]":
            path.append(part)
            sections.append(section)
            section = _SECTIONS.get(str(part))
    place = ".".join(map(str, path)) or "(schema)"
    known = sections[-1].model_fields if sections and sections[-1] is not None else {}
    return f"{place}: {_told(fault, path, known)}"


def _told(fault: Any, path: list[Any], known: Mapping[str, Any]) -> str:
    kind, value, context = fault["type"], fault["input"], fault.get("ctx") or {}
    key = str(path[-1]) if path else ""
    field = known.get(key)
    meaning = f" ({field.description.rstrip('.')})" if field is not None and field.description else ""
    match kind:
        case "missing":
            return f"is missing{meaning}"
        case "extra_forbidden":
            return f"unknown key; {_meant(key, value, known)}"
        case "union_tag_not_found" | "union_tag_invalid":
            return _type(value)
        case "value_error":
            return str(context["error"])
        case "literal_error":
            rule = f"must be {context['expected']}"
        case "string_pattern_mismatch":
            rule = "must be 1 to 80 letters, digits, dots, hyphens and underscores"
        case "greater_than_equal":
            rule = f"must be {context['ge']:g} or more"
        case "less_than_equal":
            rule = f"must be {context['le']:g} or less"
        case _:
            must_be = _MUST_BE.get(kind) or _MUST_BE.get(kind.split("_")[0])
            rule = f"must be {must_be}" if must_be else fault["msg"]
    return f"{rule}, got {written(value)}{_instead(kind, value)}{meaning}"


def _type(question: Mapping[str, Any]) -> str:
    if "type" not in question:
        return "its type is missing; write type: noul, choice or score"
    kind = question["type"]
    near = _near(kind, _QUESTIONS) if isinstance(kind, str) else ""
    return f"its type is noul, choice or score, got {written(kind)}{near}"


def _instead(kind: str, value: Any) -> str:
    """What to do about a value of the wrong kind."""
    if value is None:
        return "; write one, or remove the key"
    return "; put it in quotes" if kind == "string_type" and not isinstance(value, list | tuple | Mapping) else ""


def _meant(key: str, value: Any, known: Mapping[str, Any]) -> str:
    keys = [name for name in known if name != "id"]  # a question's id is its key
    if isinstance(value, Mapping) and "questions" in known and ("type" in value or "criteria" in value):
        return "a question stands under questions"
    other = _OTHER_WORDS.get(key.lower())
    return _near(key, [other] if other in keys else keys).removeprefix("; ") or f"known keys: {', '.join(keys)}"


def _near(name: Any, known: Iterable[str]) -> str:
    """`; did you mean X?` when something like `name` is known."""
    names = list(known)
    found = names if len(names) == 1 else difflib.get_close_matches(str(name).lower(), names, n=1, cutoff=0.5)
    return f"; did you mean {found[0]!r}?" if found else ""
