"""A byte-level BPE tokenizer of a few hundred tokens, built by hand: DiffusionGemma's control tokens, one-token marks.

It is made of code, so it needs no training and no file, and any text survives encoding and decoding. What a test wants
to be missing is left out by an argument.
"""

from collections.abc import Iterable
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

__all__ = ["CONTROL", "tiny_tokenizer", "write_tiny_tokenizer"]

CONTROL = ("<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|channel>", "<channel|>")
"""Control tokens in the order of their ids, which start at 0."""

_SPACE = "Ġ"  # how the byte-level alphabet writes a space
_WORDS = ("yes", "no")


def tiny_tokenizer(
    *,
    control: Iterable[str] = CONTROL,
    added: Iterable[str] = (),
    letters: str = ascii_uppercase + ascii_lowercase,
    pairs: int = 255 - 52,
    numbers: str = digits,
    words: Iterable[str] = _WORDS,
) -> Tokenizer:
    """The tokenizer.

    Args:
        control: special added tokens.
        added: added tokens that are not marked special (they are matched in text unless somebody takes care).
        letters: letters that are one token behind a space.
        pairs: how many of AA, AB, AC ... are one token behind a space.
        numbers: digits that are one token behind a space.
        words: further words that are one token behind a space.
    """
    control = tuple(control)
    vocab = {token: number for number, token in enumerate(control)}
    for byte in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab[byte] = len(vocab)
    merges: list[tuple[str, str]] = []
    # The longest first, and each built from its end: a word then makes no mark of its beginning.
    for word in [*words, *islice(map("".join, product(ascii_uppercase, repeat=2)), pairs), *letters, *numbers]:
        spelled = _SPACE + word
        for start in reversed(range(len(spelled) - 1)):
            if spelled[start:] not in vocab:
                merges.append((spelled[start], spelled[start + 1 :]))
                vocab[spelled[start:]] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in added])
    return tokenizer


def write_tiny_tokenizer(folder: Path, tokenizer: Tokenizer | None = None) -> Path:
    """Write `tokenizer.json`, as a checkpoint folder has it; returns `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (tokenizer or tiny_tokenizer()).save(str(folder / "tokenizer.json"))
    return folder
