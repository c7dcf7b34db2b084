"""The model's tokenizer as a read plan needs it: text is data, control tokens are named."""

import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from slotstream.schemas.errors import EngineNotCapable

__all__ = ["PlanTokenizer"]


class PlanTokenizer:
    """Wraps a `tokenizers.Tokenizer`.

    `encode` never yields a control token, whatever the text holds: a record with the text `<turn|>` cannot close the
    turn. `control` gives a control token's id by its name; only the plan writes those.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True  # special tokens in text stay text
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        added = tokenizer.get_added_tokens_decoder()
        self._control_ids = frozenset(added)
        # Added tokens that are not marked special are still matched in text: those have to be broken up by hand.
        # Longest first, so that a token that begins with another is found whole.
        names = sorted((token.content for token in added.values()), key=len, reverse=True)
        self._control_text = re.compile("|".join(map(re.escape, names)) or r"(?!)")

    @classmethod
    def from_model(cls, model: str) -> "PlanTokenizer":
        """Load `tokenizer.json` of a checkpoint folder, or of a hub id.

        Raises:
            EngineNotCapable: there is no such file.
        """
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
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        match = None if self._control_ids.isdisjoint(ids) else self._control_text.search(text)
        if match is None:
            return ids  # an <unk> for a character that the vocabulary lacks may be among them: it controls nothing
        cut = match.start() + 1  # between the first character and the rest, neither half is the token
        return self.encode(text[:cut]) + self.encode(text[cut:])

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
