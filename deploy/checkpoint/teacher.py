"""The teachers: what the small model learns to answer like. They are needed for training only and are not shipped.

Three kinds, averaged: logistic regression and a linear SVC on word and character TF-IDF (scikit-learn), and, where its
folder is given, the sentence encoder all-MiniLM-L6-v2 (Apache-2.0), fine-tuned with a linear head.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_union
from sklearn.svm import LinearSVC
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

from deploy.checkpoint.augment import Mixer

__all__ = ["Encoder", "Probabilities", "SentenceTeacher", "WordTeacher", "ensemble", "word_neighbours"]

Probabilities = NDArray[np.float32]
"""(texts, intents)"""

_SVC_SHARPNESS = 4.0  # margins to probabilities: chosen on the validation split by log-likelihood


@dataclass(slots=True)
class WordTeacher:
    """TF-IDF of word 1-2-grams and character 2-5-grams.

    characters: scikit-learn's analyzer; `char_wb` stays within words, and alone, without SVC, is the stronger one.
    """

    intents: int
    characters: str = "char"
    features: Any = field(init=False)
    regression: Any = field(init=False)
    margins: Any = field(init=False, default=None)

    def fit(self, texts: Sequence[str], intents: Sequence[int], *, with_svc: bool = True) -> "WordTeacher":
        self.features = make_union(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            TfidfVectorizer(analyzer=self.characters, ngram_range=(2, 5), sublinear_tf=True),
        )
        matrix = self.features.fit_transform(texts)
        self.regression = LogisticRegression(C=30, max_iter=200).fit(matrix, intents)
        if with_svc:
            self.margins = LinearSVC(C=1.0).fit(matrix, intents)
        return self

    def predict(self, texts: Sequence[str]) -> Probabilities:
        """Of the regression, averaged with the SVC where one was fitted."""
        matrix = self.features.transform(texts)
        probabilities = self.regression.predict_proba(matrix)
        if self.margins is not None:
            probabilities = (probabilities + softmax(_SVC_SHARPNESS * self.margins.decision_function(matrix), 1)) / 2
        out = np.zeros((len(texts), self.intents), dtype=np.float32)
        out[:, self.regression.classes_] = probabilities
        return out


@dataclass(slots=True)
class Encoder:
    """The sentence encoder before fine-tuning."""

    folder: Path
    device: str

    def tokenizer(self) -> Any:
        return AutoTokenizer.from_pretrained(self.folder)

    def model(self) -> nn.Module:
        model: nn.Module = AutoModel.from_pretrained(self.folder, dtype=torch.float32, add_pooling_layer=False)
        return model.to(self.device)


class SentenceTeacher:
    """The encoder with mean pooling and a linear head, fine-tuned on intents and on same-intent mixtures of them."""

    def __init__(self, encoder: Encoder, intents: int) -> None:
        self._encoder = encoder
        self._tokenizer = encoder.tokenizer()
        self._body = encoder.model()
        self._head = nn.Linear(384, intents).to(encoder.device)

    def fit(self, mixer: Mixer, *, epochs: int, seed: int, batch: int = 64, rate: float = 1e-4) -> "SentenceTeacher":
        torch.manual_seed(seed)
        rng = random.Random(seed)  # noqa: S311 (texts, not secrets)
        nn.init.normal_(self._head.weight, std=0.02)
        body, head = self._body.train(), self._head
        optimizer = torch.optim.AdamW(
            [{"params": body.parameters(), "lr": rate}, {"params": head.parameters(), "lr": 20 * rate}],
            weight_decay=0.01,
        )
        steps = epochs * len(mixer.texts) // batch
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [rate, 20 * rate], total_steps=steps, pct_start=0.1)
        order: list[int] = []
        for _ in range(steps):
            if len(order) < batch:
                order += rng.sample(range(len(mixer.texts)), len(mixer.texts))
            chosen, order = order[:batch], order[batch:]
            texts = [mixer.vary(rng, index) for index in chosen]
            labels = torch.tensor([mixer.intents[index] for index in chosen], device=self._encoder.device)
            loss = F.cross_entropy(head(F.dropout(self._embed(texts), 0.2)), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(body.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        body.eval()
        return self

    @torch.no_grad()
    def predict(self, texts: Sequence[str], batch: int = 2048) -> Probabilities:
        order = np.argsort([len(text) for text in texts])
        out = np.empty((len(texts), self._head.out_features), dtype=np.float32)
        for start in range(0, len(texts), batch):
            rows = order[start : start + batch]
            logits = self._head(self._embed([texts[row] for row in rows]))
            out[rows] = logits.softmax(-1).cpu().numpy()
        return out

    def _embed(self, texts: Sequence[str]) -> Tensor:
        tokens = self._tokenizer(list(texts), padding=True, truncation=True, max_length=96, return_tensors="pt")
        tokens = {name: value.to(self._encoder.device) for name, value in tokens.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self._encoder.device == "cuda"):
            states = self._body(**tokens).last_hidden_state
        weights = tokens["attention_mask"][..., None].float()
        pooled: Tensor = (states.float() * weights).sum(1) / weights.sum(1)
        return pooled


def ensemble(word: Probabilities, sentence: Sequence[Probabilities]) -> Probabilities:
    """One third the word model, two thirds the mean of the sentence models; the word model alone without those."""
    if not sentence:
        return word
    mean: Probabilities = (word + 2 * np.mean(sentence, axis=0)) / 3
    return mean


@torch.no_grad()
def word_neighbours(encoder: Encoder, words: Sequence[str], count: int = 8) -> tuple[dict[str, list[str]], Tensor]:
    """For each word the words of the encoder's vocabulary that mean most nearly the same, and the words' vectors."""
    tokenizer, model = encoder.tokenizer(), encoder.model().eval()
    known = [piece for piece in tokenizer.get_vocab() if piece.isascii() and piece.isalpha() and len(piece) > 2]

    def vectors(pieces: Sequence[str]) -> Tensor:
        parts = []
        for start in range(0, len(pieces), 2048):
            tokens = tokenizer(list(pieces[start : start + 2048]), padding=True, truncation=True, return_tensors="pt")
            tokens = {name: value.to(encoder.device) for name, value in tokens.items()}
            weights = tokens["attention_mask"][..., None].float()
            states = model(**tokens).last_hidden_state
            parts.append(F.normalize((states * weights).sum(1) / weights.sum(1), dim=-1))
        return torch.cat(parts)

    own, near = vectors(words), {}
    scores, best = (own @ vectors(known).T).topk(count + 1, dim=-1)
    for word, score, row in zip(words, scores.tolist(), best.tolist(), strict=True):
        near[word] = [known[i] for s, i in zip(score, row, strict=True) if s > 0.6 and known[i] != word][:count]
    return {word: others for word, others in near.items() if others}, own
