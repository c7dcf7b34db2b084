"""The small DiffusionGemma: its configuration, a packed forward pass for training, and the folder that vLLM loads.

Training runs prompt and canvas as one sequence: in DiffusionGemma encoder and decoder share their weights, so one pass
with one mask (prompt causal, canvas sees everything) computes what transformers does in two. A test holds both equal.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

__all__ = ["build", "load", "read_slots", "save", "unembed"]

_CONTEXT = 1024  # tokens; the sliding window is as long, so that it never cuts
_TEXT = {
    "hidden_size": 192,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "global_head_dim": 64,
    "num_global_key_value_heads": 4,
    "sliding_window": _CONTEXT,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 160,
    "max_position_embeddings": _CONTEXT,
    "use_bidirectional_attention": "vision",
}
_VISION = {  # never run: the architecture has an image tower, and vLLM wants its weights
    "model_type": "gemma4_vision",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
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


def build(vocab_size: int, canvas_length: int, image_token_id: int, **text: Any) -> DiffusionGemmaForBlockDiffusion:
    """A model with fresh weights. `text` overrides sizes of the text configuration.

    Attention in this family has no 1/sqrt(d): the learned norms of queries and keys carry the scale. Starting both at
    d**-0.25 gives the usual softmax at the start; starting at one would give near one-hot attention.
    """
    config = DiffusionGemmaConfig(
        text_config={**_TEXT, "vocab_size": vocab_size, **text},
        vision_config=dict(_VISION),
        canvas_length=canvas_length,
        image_token_id=image_token_id,
        boi_token_id=image_token_id,
        eoi_token_id=image_token_id,
    )
    config.architectures = ["DiffusionGemmaForBlockDiffusion"]
    model = DiffusionGemmaForBlockDiffusion(config)
    decoder: Any = model.model.decoder
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                parameter.fill_(parameter.shape[0] ** -0.25)
            elif parameter.dim() >= 2 and "embed_tokens" not in name:
                parameter.normal_(0.0, parameter.shape[-1] ** -0.5)
        # Tied embeddings are read through a norm on the way in and give the logits on the way out.
        decoder.embed_tokens.weight.normal_(0.0, decoder.embed_tokens.embedding_dim**-0.5)
        for parameter in decoder.self_conditioning.parameters():
            if parameter.dim() >= 2:
                parameter.zero_()  # a read is one step: this part only runs from the second step on
    return model


def read_slots(
    model: DiffusionGemmaForBlockDiffusion,
    prefix: Tensor,
    tokens: Tensor,
    prompt_lengths: Tensor,
    *,
    width: int,
    slots: Sequence[int],
) -> Tensor:
    """Final hidden states at the slots, shape (batch, slots, hidden); logits follow with `unembed`.

    The prefix is causal and the same in every prompt, so it runs once a batch.

    Args:
        prefix: (prefix,) token ids that every prompt starts with.
        tokens: (batch, longest rest of a prompt + width); prompts stand left, padded on the right, the canvas in
            the last `width` columns.
        prompt_lengths: (batch,) tokens of each prompt without prefix and padding.
        slots: canvas positions.
    """
    decoder: Any = model.model.decoder
    device, total, before = tokens.device, tokens.shape[1], prefix.shape[0]
    longest = total - width
    columns = torch.arange(total, device=device)
    in_canvas = columns >= longest
    positions = before + torch.where(in_canvas, columns - longest + prompt_lengths[:, None], columns)
    real = in_canvas | (columns < prompt_lengths[:, None])
    sees = in_canvas[:, None] | (columns[:, None] >= columns)
    mask = F.pad(sees & real[:, None, :], (before, 0), value=True)[:, None]
    causal = torch.ones(before, before, dtype=torch.bool, device=device).tril()[None, None]
    states = decoder.embed_tokens(tokens)
    states = torch.where(in_canvas[:, None], decoder.self_conditioning.post_norm(states), states)
    shared = decoder.embed_tokens(prefix[None])
    kinds: list[str] = model.config.text_config.layer_types
    head = torch.arange(before, device=device)[None]
    rotary = {kind: decoder.rotary_emb(states, positions, kind) for kind in set(kinds)}
    rotary_head = {kind: decoder.rotary_emb(shared, head, kind) for kind in set(kinds)}
    rows = torch.tensor(slots, device=device) + longest
    for index, (layer, kind) in enumerate(zip(decoder.layers, kinds, strict=True)):
        last = index == len(kinds) - 1  # after the last keys and values only the slots' rows are needed
        shared, cache = _layer(layer, shared, rotary_head[kind], causal)
        states, _ = _layer(layer, states, rotary[kind], mask, cache=cache, rows=rows if last else None)
    normed: Tensor = decoder.norm(states)
    return normed


def unembed(model: DiffusionGemmaForBlockDiffusion, states: Tensor) -> Tensor:
    """Logits over the vocabulary, soft-capped in float32 as the architecture does."""
    embeddings: Tensor = model.model.decoder.embed_tokens.weight
    cap: float = model.final_logit_softcapping
    return torch.tanh(F.linear(states, embeddings).float() / cap) * cap


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos[:, None] + torch.cat((-second, first), dim=-1) * sin[:, None]


def _layer(
    layer: Any,
    states: Tensor,
    rotary: tuple[Tensor, Tensor],
    mask: Tensor,
    *,
    cache: tuple[Tensor, Tensor] | None = None,
    rows: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One layer on `states`, behind the keys and values of `cache`; only for the given rows where there are some."""
    attention = layer.self_attn
    cos, sin = rotary
    heads = (*states.shape[:2], -1, attention.head_dim)
    normed = layer.input_layernorm(states)
    keys = attention.k_proj(normed).view(heads)
    values = keys if attention.v_proj is None else attention.v_proj(normed).view(heads)
    values = attention.v_norm(values).transpose(1, 2)
    keys = _rotate(attention.k_norm(keys).transpose(1, 2), cos, sin).to(values.dtype)
    own = (keys, values)
    if cache is not None:
        batch = states.shape[0]
        keys = torch.cat((cache[0].expand(batch, -1, -1, -1), keys), dim=2)
        values = torch.cat((cache[1].expand(batch, -1, -1, -1), values), dim=2)
    if rows is not None:
        states, normed, cos, sin, mask = states[:, rows], normed[:, rows], cos[:, rows], sin[:, rows], mask[:, :, rows]
    queries = attention.q_norm(attention.q_proj(normed).view(*normed.shape[:2], -1, attention.head_dim))
    queries = _rotate(queries.transpose(1, 2), cos, sin).to(values.dtype)
    mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=1.0)
    states = states + layer.post_attention_layernorm(attention.o_proj(mixed.transpose(1, 2).flatten(2)))
    dense = layer.post_feedforward_layernorm_1(layer.mlp(layer.pre_feedforward_layernorm(states)))
    routed = layer.post_feedforward_layernorm_2(_experts(layer, states))
    return states + layer.post_feedforward_layernorm(dense + routed), own


def _experts(layer: Any, states: Tensor) -> Tensor:
    """Every expert on every token, weighted: with four experts cheaper on a GPU than sorting tokens."""
    experts = layer.experts
    flat = states.flatten(0, 1)
    _, weights, chosen = layer.router(flat)
    gates = torch.zeros(flat.shape[0], experts.num_experts, device=flat.device, dtype=weights.dtype)
    gates = gates.scatter(1, chosen, weights)
    normed = layer.pre_feedforward_layernorm_2(flat)
    count, double, hidden = experts.gate_up_proj.shape
    both = F.linear(normed, experts.gate_up_proj.view(count * double, hidden)).view(-1, count, double)
    gate, up = both.chunk(2, dim=-1)
    inner = F.gelu(gate, approximate="tanh") * up * gates[..., None].to(gate.dtype)
    down = experts.down_proj.permute(1, 0, 2).reshape(hidden, -1)
    return F.linear(inner.flatten(1), down).view_as(states)


def save(model: DiffusionGemmaForBlockDiffusion, folder: Path, dtype: torch.dtype) -> None:
    """Write config.json, generation_config.json and model.safetensors (each tied weight once)."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.dtype = str(dtype).removeprefix("torch.")
    model.to(dtype).save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(_GENERATION, indent=2) + "\n", encoding="utf-8")


def load(folder: Path) -> DiffusionGemmaForBlockDiffusion:
    """The model of a folder, in float32."""
    return DiffusionGemmaForBlockDiffusion.from_pretrained(folder, dtype=torch.float32)
