"""Train the small DiffusionGemma on a corpus of `deploy.checkpoint.corpus`, on the read plan's own prompt and canvas.

    python -m deploy.checkpoint.train --work build/tickets --out build/tickets/checkpoint

Minutes on a GPU; on two CPU cores about an hour with --samples 250000 --batch 64 (see the model card for what that
gives). Prints loss and, where the corpus holds texts back, accuracy on those. It never sees a test set.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from deploy.checkpoint import student
from deploy.checkpoint.corpus import SCHEMA
from deploy.checkpoint.labels import Answers, derive, load_mapping
from deploy.checkpoint.layout import CANVAS, Layout, apart, assemble, layouts
from deploy.checkpoint.tokenizer import IMAGE_TOKEN_ID, UNLISTED
from slotstream.operators.tokens import PlanTokenizer
from slotstream.schemas.decision import load_decision_schema

__all__ = ["Corpus", "evaluate", "loss_of", "train"]

_LENGTHS = (12, 16, 24, 40, 96)  # states are padded to the next of these; longer ones are left out
_UNLISTED_SHARE = 0.5  # of the probability, for a text that fits no option


class Corpus:
    """The states on one device, sorted into groups of like length, and their targets over the intents."""

    def __init__(self, arrays: Any, *, hard: float, unseen: float, device: str) -> None:
        targets = arrays["seen"].astype(np.float32)
        if unseen and "unseen" in arrays:
            targets = (1 - unseen) * targets + unseen * arrays["unseen"].astype(np.float32)
        intents = arrays["intents"]
        pure = np.flatnonzero(intents >= 0)
        targets[pure] *= 1 - hard
        targets[pure, intents[pure]] += hard
        count = len(arrays["state_ends"])
        self.targets = torch.full((count, targets.shape[1]), 1 / targets.shape[1], dtype=torch.float16, device=device)
        self.targets[: len(targets)] = torch.from_numpy(targets.astype(np.float16)).to(device)
        self.fits = torch.arange(count, device=device) < len(targets)
        self.groups = _groups(arrays["state_ids"], arrays["state_ends"], device)

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Endless (ids, lengths, targets, fits); every batch from one group, groups as often as they are large."""
        shares = np.array([len(rows) for rows, _, _ in self.groups], dtype=float)
        while True:
            rows, ids, lengths = self.groups[rng.choice(len(self.groups), p=shares / shares.sum())]
            pick = torch.from_numpy(rng.integers(0, len(rows), size)).to(ids.device)
            yield ids[pick].long(), lengths[pick], self.targets[rows[pick]].float(), self.fits[rows[pick]]


def _groups(flat: NDArray[np.uint16], ends: NDArray[np.int64], device: str) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(row numbers, padded ids, lengths) for each length in use."""
    starts = np.concatenate(([0], ends[:-1]))
    lengths = ends - starts
    groups = []
    for shorter, longest in zip((0, *_LENGTHS[:-1]), _LENGTHS, strict=True):
        rows = np.flatnonzero((lengths > shorter) & (lengths <= longest))
        if len(rows):
            columns = np.arange(longest)
            where = np.minimum(starts[rows, None] + columns, len(flat) - 1)
            ids = np.where(columns < lengths[rows, None], flat[where], 0).astype(np.int16)
            groups.append(tuple(torch.from_numpy(a).to(device) for a in (rows, ids, lengths[rows])))
    return groups  # type: ignore[return-value]


def loss_of(
    model: Any, layout: Layout, answers: list[Tensor], batch: tuple[Tensor, ...], *, noise: float, unlisted: int
) -> Tensor:
    """Cross-entropy over the whole vocabulary, averaged over slots: marks learn probability and mass at once."""
    ids, lengths, targets, fits = batch
    vocab_size = model.config.text_config.vocab_size
    swap = torch.rand(ids.shape, device=ids.device) < noise * torch.rand(len(ids), 1, device=ids.device) * 2
    ids = torch.where(swap, torch.randint(vocab_size, ids.shape, device=ids.device), ids)
    tokens, prompt_lengths = assemble(layout, ids, lengths, vocab_size)
    states = student.read_slots(
        model, layout.prefix, tokens, prompt_lengths, width=len(layout.canvas), slots=layout.slots
    )
    log_probs = student.unembed(model, states).log_softmax(-1)
    listed = torch.where(fits, 1.0, 1 - _UNLISTED_SHARE)
    total = torch.zeros((), device=ids.device)
    for row, (question, marks) in enumerate(zip(layout.questions, layout.marks, strict=True)):
        wanted = torch.where(fits[:, None], targets @ answers[question], 1 / len(marks))
        terms = listed * (wanted * log_probs[:, row, marks]).sum(-1) + (1 - listed) * log_probs[:, row, unlisted]
        total = total - terms.mean()
    return total / len(layout.slots)


@torch.no_grad()
def evaluate(model: Any, layout: Layout, answers: Answers, arrays: Any, device: str) -> dict[str, float]:
    """Accuracy of each question, and nll of the first, on the texts held out."""
    intents = torch.from_numpy(arrays["held_out_intents"]).to(device)
    found: dict[str, float] = {}
    rows_all, log_probs = [], []
    vocab_size = model.config.text_config.vocab_size
    for rows, ids, lengths in _groups(arrays["held_out_ids"], arrays["held_out_ends"], device):
        for part in torch.split(torch.arange(len(rows), device=device), 512):
            tokens, prompt_lengths = assemble(layout, ids[part].long(), lengths[part], vocab_size)
            states = student.read_slots(
                model, layout.prefix, tokens, prompt_lengths, width=len(layout.canvas), slots=layout.slots
            )
            log_probs.append(student.unembed(model, states).log_softmax(-1))
            rows_all.append(rows[part])
    read, truth = torch.cat(log_probs), intents[torch.cat(rows_all)]
    for row, (question, marks) in enumerate(zip(layout.questions, layout.marks, strict=True)):
        right = torch.from_numpy(answers.matrices[question]).to(device)[truth].argmax(-1)
        chosen = read[:, row, marks]
        found[answers.questions[question]] = round((chosen.argmax(-1) == right).float().mean().item(), 4)
        found[f"{answers.questions[question]}_nll"] = round(F.cross_entropy(chosen, right).item(), 4)
    found["mass"] = round(read[:, 0, layout.marks[0]].exp().sum(-1).mean().item(), 4)
    return found


def start_from_vectors(model: Any, vectors: NDArray[np.float32], marks: set[int]) -> None:
    """Give each token the direction of its meaning: the encoder's vectors, projected on their main axes."""
    centred = torch.from_numpy(vectors - vectors.mean(0))
    size = model.config.text_config.hidden_size
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    projected = F.normalize(centred @ axes[:size].T, dim=-1)
    embeddings = model.model.decoder.embed_tokens.weight
    usual = [token for token in range(len(vectors)) if token not in marks]
    with torch.no_grad():
        embeddings[usual] = 0.8 * projected[usual].to(embeddings) + 0.6 * embeddings[usual]


def train(args: argparse.Namespace) -> None:
    """Train and write the checkpoint to args.out."""
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    device = args.device
    arrays = dict(np.load(args.work / "corpus.npz"))
    tokenizer = PlanTokenizer.from_model(str(args.work))
    schema = load_decision_schema(SCHEMA)
    answers = derive(schema, load_mapping())
    matrices = [torch.from_numpy(matrix).to(device) for matrix in answers.matrices]
    joint, *singles = [*layouts(schema, tokenizer, device), *layouts(apart(schema), tokenizer, device)]
    (unlisted,) = tokenizer.encode(UNLISTED)
    model: Any = student.build(tokenizer.vocab_size, CANVAS, IMAGE_TOKEN_ID)
    if arrays["vectors"].size and not args.plain_start:
        start_from_vectors(model, arrays["vectors"], {token for marks in joint.marks for token in marks.tolist()})
    model = model.to(device).train()
    corpus = Corpus(arrays, hard=args.hard, unseen=args.unseen, device=device)
    trained = [p for n, p in model.named_parameters() if "vision" not in n and "self_conditioning" not in n]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": args.decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.98), fused=device == "cuda")
    steps = args.samples // args.batch
    warm = max(1, steps // 30)
    average = [p.detach().clone() for p in trained]
    started, shown = time.monotonic(), 0.0
    for step, batch in zip(range(steps), corpus.batches(args.batch, rng), strict=False):
        layout = joint if rng.random() > args.alone else singles[rng.integers(len(singles))]
        for group in optimizer.param_groups:
            group["lr"] = args.rate * min(step / warm, 0.5 + 0.5 * math.cos(math.pi * step / steps))
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = loss_of(model, layout, matrices, batch, noise=args.noise, unlisted=unlisted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        torch._foreach_lerp_(average, trained, 1 - args.average if step > 1 / (1 - args.average) else 1.0)
        if step % args.report == 0 or time.monotonic() - shown > 60:
            shown = time.monotonic()
            speed = (step + 1) * args.batch / (shown - started)
            print(f"step {step}/{steps}  loss {loss.item():.4f}  {speed:.0f} samples/s", flush=True)
            if step:
                print(f"  held out {json.dumps(evaluate(model, joint, answers, arrays, device))}", flush=True)
    with torch.no_grad():
        for parameter, mean in zip(trained, average, strict=True):
            parameter.copy_(mean)
    seconds = time.monotonic() - started
    student.save(model, args.out, getattr(torch, args.store))
    report: dict[str, Any] = {
        "seconds": round(seconds),
        "samples": steps * args.batch,
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "held_out_texts": len(arrays["held_out_intents"]),
        "teachers": json.loads(str(arrays["teachers"])),
    }
    rounded = student.load(args.out).to(device).eval()
    report["held_out"] = evaluate(rounded, joint, answers, arrays, device)
    (args.work / "training.json").write_text(json.dumps({**report, "options": _options(args)}, indent=1) + "\n")
    print(json.dumps(report), flush=True)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    return {key: value for key, value in vars(args).items() if not isinstance(value, Path)}


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder that deploy.checkpoint.corpus wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--samples", type=int, default=3_600_000, help="texts to train on, with repetition")
    parser.add_argument("--batch", type=int, default=1024, help="texts a step")
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate (cosine)")
    parser.add_argument("--decay", type=float, default=0.05, help="weight decay of matrices")
    parser.add_argument("--noise", type=float, default=0.08, help="mean share of the state's tokens replaced at random")
    parser.add_argument(
        "--hard", type=float, default=0.1, help="weight of the known intent beside the teachers' answer"
    )
    parser.add_argument("--unseen", type=float, default=0.5, help="weight of teachers that did not see a text's source")
    parser.add_argument("--alone", type=float, default=0.1, help="share of steps with one question alone in its prompt")
    parser.add_argument(
        "--average", type=float, default=0.999, help="decay of the running mean of weights that is kept"
    )
    parser.add_argument("--plain-start", action="store_true", help="do not start token vectors from the encoder's")
    parser.add_argument("--store", default="bfloat16", choices=("bfloat16", "float16", "float32"), help="stored type")
    parser.add_argument("--report", type=int, default=400, help="steps between reports")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    train(_arguments().parse_args())
