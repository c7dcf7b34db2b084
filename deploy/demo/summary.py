"""What the demo prints at its end: a text for people, of at most 100 columns. Pure."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.demo.place import ROUTES
from deploy.demo.produce import Sample
from deploy.demo.read_back import Row
from deploy.demo.tally import Outcomes, Score, answer_of
from slotstream.schemas.decision import Question

__all__ = ["WIDTH", "Run", "summarise"]

WIDTH = 100
BAR = 30
SHOWN_ANSWERS = 8
MEANING = {
    "decided": "sure enough to act on",
    "review": "sound, but below a threshold",
    "dead": "could not be decided; headers say why",
}
COLOURS = {"decided": "32", "review": "33", "dead": "31", "bold": "1"}


@dataclass(frozen=True, slots=True)
class Run:
    """How the run went: seconds by phase, in order, and of those the seconds in which messages were read."""

    phases: Mapping[str, float]
    reads_s: float


def summarise(outcomes: Outcomes, run: Run, *, colour: bool = False) -> str:
    """The whole summary; `colour` is for terminals."""
    paint = _Paint(colour)
    parts = [
        _counts(outcomes, paint),
        _reasons(outcomes, paint),
        _answers(outcomes, paint),
        _accuracy(outcomes, paint),
        _examples(outcomes, paint),
        _speed(outcomes, run, paint),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


@dataclass(frozen=True, slots=True)
class _Paint:
    on: bool

    def __call__(self, text: str, colour: str) -> str:
        return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if self.on else text

    def title(self, text: str) -> str:
        return self(text, "bold")


def _counts(outcomes: Outcomes, paint: _Paint) -> list[str]:
    total = len(outcomes.sent)
    counts = {route: len({row.origin for row in outcomes.rows[route]}) for route in ROUTES}
    lines = [paint.title(f"{total} messages in, each on one of three topics"), ""]
    for route, count in counts.items():
        share = count / total if total else 0.0
        lines.append(paint(f"  {route:8}{count:5}{share:6.0%}  {_bar(share):{BAR}}  ", route) + MEANING[route])
    summed = " + ".join(f"{count} {route}" for route, count in counts.items())
    equal = "=" if sum(counts.values()) == total else "is NOT"
    lines += ["", f"  {total} in {equal} {summed}"]
    if outcomes.tombstones:
        lines.append(f"  {outcomes.tombstones} of the decided are tombstones (withdrawn tickets): passed on, not asked")
    return lines + [f"  Note: {remark}." for remark in outcomes.remarks()]


def _reasons(outcomes: Outcomes, paint: _Paint) -> list[str]:
    lines = []
    if reasons := outcomes.review_reasons():
        lines += [paint.title("Why review") + " (a record may have several reasons)"]
        lines += [f"  {count:5}  {_cut(reason, WIDTH - 9)}" for reason, count in reasons.most_common()]
    if codes := outcomes.dead_codes():
        lines += [*([""] if lines else []), paint.title("Why dead")]
        for code, count in codes.most_common():
            row = next(row for row in outcomes.rows["dead"] if row.header("slotstream.error.code") == code)
            told = row.header("slotstream.error.message") or ""
            lines.append(f"  {count:5}  {_cut(code, 21):22}{_cut(told, WIDTH - 31)}")
    return lines


def _answers(outcomes: Outcomes, paint: _Paint) -> list[str]:
    lines = []
    for question in outcomes.questions:
        answers = outcomes.answers(question)
        if not answers:
            continue
        lines += ["", f"  {question.id}", *_mix(answers)]
    return [paint.title("Answers") + " (decided and review)", *lines] if lines else []


def _mix(answers: Counter[str]) -> Iterable[str]:
    total, top = answers.total(), answers.most_common(SHOWN_ANSWERS)
    whole = total if len(answers) == len(top) else top[0][1]
    words = {"True": "yes", "False": "no"}
    for answer, count in top:
        name = _cut(words.get(answer, answer).replace("_", " "), 45)
        yield f"    {name:46}{count:5}{count / total:6.0%}  {_bar(count / whole)}"
    if rest := len(answers) - len(top):
        yield f"    {f'{rest} others':46}{total - sum(count for _, count in top):5}"


def _accuracy(outcomes: Outcomes, paint: _Paint) -> list[str]:
    columns = {"all": ("decided", "review"), "decided": ("decided",), "review": ("review",)}
    table = {q.id: [outcomes.accuracy(q, *routes) for routes in columns.values()] for q in outcomes.questions}
    if not any(scores[0].of for scores in table.values()):
        return []
    lines = [paint.title("Right answers, against those that were known before"), ""]
    lines += ["  " + f"{'':14}" + "".join(f"{name:>20}" for name in columns)]
    lines += [f"  {question:14}" + "".join(f"{_percent(s):>20}" for s in scores) for question, scores in table.items()]
    first = outcomes.questions[0]
    overall, _, review = table[first.id]
    lines += [
        "",
        f"  {review.wrong} of the {overall.wrong} wrong answers to {first.id} are in review: that is its use.",
    ]
    hard = outcomes.accuracy(first, "decided", "review", hard=True)
    if hard.of:
        wrong = outcomes.accuracy(first, "decided", hard=True).wrong
        lines += [
            f"  Hard messages: {hard.right} of {hard.of} {first.id} answers right, {wrong} wrong and yet decided."
        ]
    scope = outcomes.out_of_scope_in_review()
    if scope.of:
        lines += [f"  Out of scope (no option fits): {scope.right} of {scope.of} went to review."]
    return lines


def _percent(score: Score) -> str:
    return f"{score.share:.1%} of {score.of}" if score.of else "-"


def _examples(outcomes: Outcomes, paint: _Paint) -> list[str]:
    lines = [paint.title("Three records, as they stand on their topics")]
    decided = [row for _, row in outcomes.labelled("decided")]
    for row in (*decided[:1], *outcomes.rows["review"][:1], *outcomes.rows["dead"][:1]):
        lines += ["", *_record(row, outcomes.sent.get(row.origin), outcomes.questions, paint)]
    return lines if len(lines) > 1 else []


def _record(row: Row, sample: Sample | None, questions: Sequence[Question], paint: _Paint) -> list[str]:
    lines = [paint(f"  {row.topic}", row.topic if row.topic in COLOURS else "bold") + f"  {row.key}  from {row.origin}"]
    if sample is not None and row.fields is not None:
        lines += _wrapped("text", sample.text, limit=240)
    if row.fields is not None and row.topic != "dead":
        lines += [_label(row, question) for question in questions]
        lines += _wrapped("because", "; ".join(_texts(row, "slotstream.review.reason")))
        lines += _wrapped("made by", _making(row.fields))
    if code := row.header("slotstream.error.code"):
        lines += _wrapped("error", f"{code}, at stage {row.header('slotstream.error.stage')}")
        lines += _wrapped("", row.header("slotstream.error.message") or "")
        value = row.value or b""
        shown = value[:16].hex(" ") + (" ..." if len(value) > 16 else "")
        lines += _wrapped("value", f"{len(value)} bytes, as they came: {shown}" if value else "empty, as it came")
    own = [f"{name}={text}" for name, text in row.headers if not name.startswith(("slotstream.", "__connect."))]
    return lines + _wrapped("headers", ", ".join(own) + " (as they came)" if own else "")


def _label(row: Row, question: Question) -> str:
    assert row.fields is not None
    answer = answer_of(row, question)
    text = ("no", "yes")[answer] if isinstance(answer, bool) else answer
    if question.type == "score":
        text += f" ({row.fields[question.id]:.2f})"
    names = {"prob": "probability", "margin": "margin", "mass": "mass"}
    numbers = "  ".join(f"{short} {row.fields[f'{question.id}_{name}']:.3f}" for short, name in names.items())
    return f"    {_cut(question.id, 9):10}{_cut(text, 49):50}{numbers}"


def _making(fields: Mapping[str, Any]) -> str:
    return (
        f"schema {fields['decision_schema']} {fields['decision_schema_version']} ({fields['decision_schema_hash']}), "
        f"model {fields['decision_model']}, engine {fields['decision_engine']}, "
        f"prompt {fields['decision_prompt_hash']}, {fields['decided_at']:%H:%M:%S} UTC"
    )


def _texts(row: Row, name: str) -> list[str]:
    return [text for key, text in row.headers if key == name]


def _wrapped(name: str, text: str, limit: int = 400) -> list[str]:
    if not text:
        return []
    first, rest = f"    {name:10}", " " * 14
    return textwrap.wrap(_cut(text, limit), WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _speed(outcomes: Outcomes, run: Run, paint: _Paint) -> list[str]:
    asked = sum(1 for _ in outcomes.labelled("decided", "review"))
    lines = [paint.title("Time")]
    lines += [f"  {seconds:6.1f} s  {phase}" for phase, seconds in run.phases.items()]
    lines += [f"  {sum(run.phases.values()):6.1f} s  together"]
    if asked and run.reads_s > 0:
        lines += [f"  {asked / run.reads_s:6.1f} reads/s: {asked} messages, one read each for all questions"]
    return lines


def _bar(share: float) -> str:
    return "█" * max(round(share * BAR), 1 if share > 0 else 0)
