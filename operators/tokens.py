"""The model's tokenizer as a read plan needs it: text is data, control tokens are named."""

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tokenizers import Tokenizer

from slotstream.schemas.errors import EngineNotCapable

__all__ = ["PlanTokenizer"]


class PlanTokenizer:
    """Takes over a `tokenizers.Tokenizer` (and changes its settings).

    `encode` never yields a control token, whatever the text holds: a record with the text `<turn|>` cannot close the
    turn. `control` gives a control token's id by its name; only the plan writes those. Every added token counts as a
    control token, marked special or not: checkpoints forget the mark.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True  # special tokens in text stay text
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        added = tokenizer.get_added_tokens_decoder()
        self._control_ids = frozenset(added)
        # <unk> may stand for a character that the vocabulary lacks: then it controls nothing.
        unknown = getattr(tokenizer.model, "unk_token", None)
        self._never = self._control_ids - {tokenizer.token_to_id(unknown) if unknown else None}
        # Added tokens that are not marked special are still matched in text: those have to be broken up by hand.
        # A look-ahead finds overlapping ones, too.
        names = "|".join(re.escape(token.content) for token in added.values())
        self._control_text = re.compile(f"(?={names})" if names else r"(?!)")

    @classmethod
    def from_model(cls, model: str) -> "PlanTokenizer":
        """Load `tokenizer.json` of a checkpoint folder, or of a hub id.

        Raises:
            EngineNotCapable: there is no such file.
        """
        # Texts are short: waking other threads costs more than they save, and the cores may be the engine's.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        path = Path(model) / "tokenizer.json"
        try:
            return cls(Tokenizer.from_file(str(path)) if Path(model).is_dir() else Tokenizer.from_pretrained(model))
        except Exception as error:  # the tokenizers library raises bare Exception
            raise EngineNotCapable(
                f"model {model!r}: its tokenizer cannot be loaded ({error}); "
                "a checkpoint folder needs a tokenizer.json of the tokenizers library"
            ) from None

    @property
    def control_ids(self) -> frozenset[int]:
        return self._control_ids

    @property
    def vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` as data: no special tokens are added, and none is recognised in it."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of every text, in two thirds of the time; other Python threads run meanwhile."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        all_ids: list[list[int]] = [encoding.ids for encoding in encodings]
        for number, ids in enumerate(all_ids):
            if not self._never.isdisjoint(ids):
                all_ids[number] = self._encode_suspect(texts[number])
        return all_ids

    def _encode_suspect(self, text: str) -> list[int]:
        """For a text in which the tokenizer found a control token."""
        # Cut behind the first character of every control token's text: no piece holds a whole one then.
        cuts = [match.start() + 1 for match in self._control_text.finditer(text)]
        ids = self._encode_pieces([text[start:end] for start, end in pairwise([0, *cuts, len(text)])])
        if self._never.isdisjoint(ids):
            return ids
        # The tokenizer made a control token of other text (full-width letters, say): nothing may merge with anything.
        return [token_id for token_id in self._encode_pieces(text) if token_id not in self._never]

    def _encode_pieces(self, pieces: Sequence[str]) -> list[int]:
        different = list(dict.fromkeys(pieces))  # a text that attacks by the megabyte repeats itself
        encodings = self._tokenizer.encode_batch_fast(different, add_special_tokens=False)
        ids = {piece: encoding.ids for piece, encoding in zip(different, encodings, strict=True)}
        return [token_id for piece in pieces for token_id in ids[piece]]

    def control(self, name: str) -> int:
        """The id of a control token.

        Raises:
            EngineNotCapable: the tokenizer has no such token.
        """
        token_id = self._tokenizer.token_to_id(name)
        if token_id is None or token_id not in self._control_ids:
            raise EngineNotCapable(
                f"the tokenizer has no control token {name!r}: it is not a DiffusionGemma tokenizer; "
                "check that engine.model is a DiffusionGemma checkpoint"
            )
        return int(token_id)

    def one_token_after(self, lead: str, lead_ids: Sequence[int], text: str) -> int | None:
        """The single id that `text` adds after `lead`, or None when it is not exactly one token there."""
        ids = self.encode(lead + text)
        if len(ids) == len(lead_ids) + 1 and ids[:-1] == list(lead_ids) and ids[-1] not in self._control_ids:
            return ids[-1]
        return None
