"""Whether the configured model can be a checkpoint at all: seen at once, before anything is imported or fetched."""

import re
from pathlib import Path

from slotstream.operators.engines.config import EngineConfig
from slotstream.schemas.errors import ConfigError

__all__ = ["check_checkpoint"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SETTING = "engine.model (decide: --model)"


def check_checkpoint(config: EngineConfig) -> None:
    """Look at what `config.model` names. Something like `owner/name` that is no folder may be a hub id, and passes.

    Raises:
        ConfigError: there is no such folder, it is a file, or it holds no checkpoint.
    """
    folder = Path(config.model_folder)
    if folder.is_dir():
        # The instant engine runs no model: a tokenizer is all it needs.
        if config.kind != "instant" and not (folder / "config.json").is_file():
            inside = sorted(path.parent for path in folder.glob("*/config.json"))
            hint = f"; did you mean {str(inside[0])!r}?" if inside else ": name a DiffusionGemma checkpoint's folder"
            raise ConfigError(f"{_SETTING} is {str(folder)!r}, a folder without a config.json{hint}")
    elif folder.exists():
        raise ConfigError(f"{_SETTING} is {str(folder)!r}, a file: name the checkpoint's folder")
    elif not _HUB_ID.fullmatch(config.model_folder):
        raise ConfigError(f"{_SETTING} is {str(folder)!r}, and there is no such folder: name a checkpoint's folder")
