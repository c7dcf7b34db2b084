"""The checkpoint's tokenizer: byte-level BPE over the training texts, in which every mark is one token.

Marks are ordinary merges, not added tokens, so a record's text is never matched against them specially. Control tokens
are added tokens, as in the real model; a record's text is tokenized with `encode_special_tokens`, where they stay text.
"""

from collections.abc import Iterable
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

__all__ = ["CONTROL", "IMAGE_TOKEN_ID", "UNLISTED", "train_tokenizer", "write_tokenizer"]

CONTROL = (
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<|turn>",
    "<turn|>",
    "<|channel>",
    "<channel|>",
    "<|image|>",
    "<|video|>",
)
IMAGE_TOKEN_ID = CONTROL.index("<|image|>")
UNLISTED = " none"  # what an out-of-scope text is trained to answer: one token, and no mark
_PAIRS = 255 - 52  # with the single letters enough for the longest choice question


def _spelled_marks() -> list[str]:
    letters = ascii_uppercase + ascii_lowercase
    pairs = ["".join(pair) for pair in islice(product(ascii_uppercase, repeat=2), _PAIRS)]
    return [*letters, *pairs, *"0123456789", "yes", "no", "none"]


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Byte-level BPE of `vocab_size` tokens, marks included; the same texts give the same tokenizer."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))  # noqa: S106 (a word of a vocabulary)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in CONTROL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Marks get counts above every word's, so that their merges come first and no longer word eats them.
    marks = [f" {mark}" for mark in _spelled_marks()]
    tokenizer.train_from_iterator([*texts, *(marks * 20_000)], trainer)
    for mark in [*marks, UNLISTED]:
        if len(tokenizer.encode(mark, add_special_tokens=False).ids) != 1:
            raise ValueError(f"mark {mark!r} must be one token of the vocabulary; raise vocab_size ({vocab_size})")
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",  # noqa: S106
        eos_token="<eos>",  # noqa: S106
        bos_token="<bos>",  # noqa: S106
        unk_token="<unk>",  # noqa: S106
        extra_special_tokens=list(CONTROL[4:]),
        model_max_length=1024,
    )
    wrapped.save_pretrained(folder)
