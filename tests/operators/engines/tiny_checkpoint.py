"""A tiny DiffusionGemma with random weights and its own tokenizer: one file for both engines, no training needed."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion, PreTrainedTokenizerFast

__all__ = ["SLIDING_WINDOW", "VOCAB_SIZE", "write_tiny_checkpoint"]

VOCAB_SIZE = 640
SLIDING_WINDOW = 96
_SPECIAL = [
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
]

_TEXT = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "global_head_dim": 64,
    "sliding_window": SLIDING_WINDOW,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 64,
    "max_position_embeddings": 1024,
    "use_bidirectional_attention": "vision",
}
_VISION = {
    "model_type": "gemma4_vision",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "position_embedding_size": 64,
}
_GENERATION = {
    "bos_token_id": 2,
    "eos_token_id": [1],
    "pad_token_id": 0,
    "max_denoising_steps": 48,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
    "t_min": 0.4,
    "t_max": 0.8,
    "stability_threshold": 1,
    "confidence_threshold": 0.005,
}


def write_tiny_checkpoint(folder: Path, *, seed: int = 0, canvas_length: int = 32, max_positions: int = 1024) -> Path:
    """Write configuration, tokenizer and float32 safetensors; returns `folder`.

    Matrices are scaled by their fan-in, so that activations and distributions have a natural size: with the library's
    own initialisation every distribution is nearly flat and no comparison of engines would mean anything. Norms after
    a block are large, so that the layers outweigh the residual path and a slot does not just echo its own token.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = DiffusionGemmaConfig(
        text_config={**_TEXT, "max_position_embeddings": max_positions},
        vision_config=_VISION,
        canvas_length=canvas_length,
        image_token_id=8,
        boi_token_id=8,
        eoi_token_id=8,
    )
    config.architectures = ["DiffusionGemmaForBlockDiffusion"]
    torch.manual_seed(seed)
    model = DiffusionGemmaForBlockDiffusion(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, parameter.shape[-1] ** -0.5)
            elif "norm" in name:
                parameter.fill_(2.0 if "post_" in name else 1.0)
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(_GENERATION), encoding="utf-8")
    _tokenizer().save_pretrained(folder)
    return folder


def _tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    pairs = [f"{a}{b}" for a in letters[:14] for b in letters[:26]]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=_SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([*pairs, "yes no model user thought"], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        extra_special_tokens=_SPECIAL[4:],
    )
