"""Random weights at real size that behave like weights: for `load_format: dummy`, in vLLM's own processes.

vLLM's dummy loader draws everything from +-1e-3, also the norms: activations die, the router sends every token to the
same experts, and an engine looks faster or slower than it is. Here norms and scales are one, matrices are normal with a
variance of one over their inputs, and queries and keys are normed so that attention's scores have a variance of one
(with more, every token attends to one other, and the last bit of a sum decides which). Every figure from such weights
must say so.

vLLM loads a plugin only through an entry point. `plugin_folder` writes one, for PYTHONPATH: the product's own packaging
knows nothing of it. The replacement takes place before an online quantization, so bf16 and FP8 get the same weights.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["MODEL_26B", "MODEL_TINY", "model_folder", "plugin_folder", "scale_dummy_weights"]

MODEL_26B = {
    "vocab_size": 262_144, "hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 30,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
    "num_global_key_value_heads": 2, "sliding_window": 1024, "num_experts": 128, "top_k_experts": 8,
    "moe_intermediate_size": 704, "max_position_embeddings": 262_144, "use_bidirectional_attention": "vision",
}  # fmt: skip
"""The text model of DiffusionGemma-26B-A4B."""

MODEL_TINY = {
    "vocab_size": 2048, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "global_head_dim": 64, "sliding_window": 64,
    "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 64, "max_position_embeddings": 8192,
    "use_bidirectional_attention": "vision",
}  # fmt: skip
"""A toy of the same architecture, to try the bench itself on a CPU."""

_VISION = {
    "model_type": "gemma4_vision", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32,
}  # fmt: skip
_GENERATION = {
    "bos_token_id": 2, "eos_token_id": [1], "pad_token_id": 0, "max_denoising_steps": 48, "t_min": 0.4, "t_max": 0.8,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
    "stability_threshold": 1, "confidence_threshold": 0.005,
}  # fmt: skip


def model_folder(folder: Path, text: Mapping[str, Any]) -> Path:
    """Write a checkpoint folder without weights (and without a tokenizer: reads are token ids) and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "model_type": "diffusion_gemma",
        "canvas_length": 256,
        "dtype": "bfloat16",
        "tie_word_embeddings": True,
        "text_config": {"model_type": "diffusion_gemma_text", **text},
        "vision_config": _VISION,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(_GENERATION, indent=1), encoding="utf-8")
    return folder


def plugin_folder(folder: Path) -> Path:
    """Write an entry point to `scale_dummy_weights` that every process finds whose PYTHONPATH has the folder."""
    information = folder / "slotstream_bench-0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: slotstream-bench\nVersion: 0\n")
    (information / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\nslotstream_bench_weights = {__name__}:{scale_dummy_weights.__name__}\n"
    )
    return folder


def scale_dummy_weights() -> None:
    """Replace the random numbers of vLLM's dummy loader in this process. Deterministic: the n-th tensor of a shape has
    the same values in every engine."""
    import torch
    from vllm.model_executor.model_loader import dummy_loader

    seen: Counter[tuple[int, ...]] = Counter()

    def initialize(tensor: torch.Tensor) -> None:
        if not tensor.is_floating_point():
            return
        if tensor.ndim < 2:
            tensor.data.fill_(1.0)
            return
        shape = tuple(tensor.shape)
        seen[shape] += 1
        generator = torch.Generator(tensor.device).manual_seed(hash((*shape, seen[shape])) % 2**31)
        tensor.data.normal_(0.0, shape[-1] ** -0.5, generator=generator)

    load_weights = dummy_loader.DummyModelLoader.load_weights

    def load_scaled(loader: Any, model: torch.nn.Module, model_config: Any) -> None:
        load_weights(loader, model, model_config)
        for name, parameter in model.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                parameter.data.fill_(parameter.shape[-1] ** -0.25)

    dummy_loader.initialize_single_dummy_weight = initialize
    dummy_loader.DummyModelLoader.load_weights = load_scaled
