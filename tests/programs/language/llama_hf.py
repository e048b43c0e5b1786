# coding=utf-8
"""Llama in the style of Hugging Face: rotate_half, repeat_kv, DynamicCache, 4-d causal masks, sdpa or eager attention, loss upcast."""
import math
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import nn


class LlamaConfig(dict):
    __getattr__ = dict.__getitem__


class DynamicCache:
    def __init__(self) -> None:
        self.key_cache: List[torch.Tensor] = []
        self.value_cache: List[torch.Tensor] = []

    def update(self, key_states, value_states, layer_idx, cache_kwargs: Optional[Dict[str, Any]] = None):
        if len(self.key_cache) <= layer_idx:
            self.key_cache.append(key_states)
            self.value_cache.append(value_states)
        else:
            self.key_cache[layer_idx] = torch.cat([self.key_cache[layer_idx], key_states], dim=-2)
            self.value_cache[layer_idx] = torch.cat([self.value_cache[layer_idx], value_states], dim=-2)
        return self.key_cache[layer_idx], self.value_cache[layer_idx]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0 if len(self.key_cache) <= layer_idx else self.key_cache[layer_idx].shape[-2]

    def reorder_cache(self, beam_idx: torch.LongTensor):
        for layer_idx in range(len(self.key_cache)):
            self.key_cache[layer_idx] = self.key_cache[layer_idx].index_select(0, beam_idx.to(self.key_cache[layer_idx].device))
            self.value_cache[layer_idx] = self.value_cache[layer_idx].index_select(0, beam_idx)


class StaticCache(nn.Module):
    def __init__(self, config, max_batch, max_len):
        super().__init__()
        head_dim = config.hidden_size // config.num_attention_heads
        for i in range(config.num_hidden_layers):
            for name in ("key", "value"):
                self.register_buffer(f"{name}_{i}", torch.zeros(max_batch, config.num_key_value_heads, max_len, head_dim), persistent=False)

    def update(self, key_states, value_states, layer_idx, cache_kwargs):
        k_out, v_out = getattr(self, f"key_{layer_idx}"), getattr(self, f"value_{layer_idx}")
        cache_position = cache_kwargs["cache_position"]
        k_out.index_copy_(2, cache_position, key_states)
        v_out.index_copy_(2, cache_position, value_states)
        return k_out, v_out

    def get_seq_length(self, layer_idx=0):
        return (self.key_0[0, 0].any(dim=-1)).sum()


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        """
        LlamaRMSNorm is equivalent to T5LayerNorm
        """
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)

    def extra_repr(self):
        return f"{tuple(self.weight.shape)}, eps={self.variance_epsilon}"


class LlamaRotaryEmbedding(nn.Module):
    def __init__(self, config, device=None):
        super().__init__()
        dim = config.hidden_size // config.num_attention_heads
        inv_freq = 1.0 / (config.rope_theta ** (torch.arange(0, dim, 2, dtype=torch.int64).to(device=device, dtype=torch.float) / dim))
        # llama3: by parts
        low_freq_wavelen, high_freq_wavelen, factor = 64 / 1.0, 64 / 4.0, 8.0
        wavelen = 2 * math.pi / inv_freq
        inv_freq_llama = torch.where(wavelen > low_freq_wavelen, inv_freq / factor, inv_freq)
        smooth_factor = (64 / wavelen - 1.0) / (4.0 - 1.0)
        smoothed_inv_freq = (1 - smooth_factor) * inv_freq_llama / factor + smooth_factor * inv_freq_llama
        is_medium_freq = ~(wavelen < high_freq_wavelen) * ~(wavelen > low_freq_wavelen)
        inv_freq = torch.where(is_medium_freq, smoothed_inv_freq, inv_freq_llama)
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.original_inv_freq = self.inv_freq

    @torch.no_grad()
    def forward(self, x, position_ids):
        inv_freq_expanded = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1).to(x.device)
        position_ids_expanded = position_ids[:, None, :].float()
        device_type = x.device.type if isinstance(x.device.type, str) and x.device.type != "mps" else "cpu"
        with torch.autocast(device_type=device_type, enabled=False):  # Force float32
            freqs = (inv_freq_expanded.float() @ position_ids_expanded.float()).transpose(1, 2)
            emb = torch.cat((freqs, freqs), dim=-1)
            cos = emb.cos()
            sin = emb.sin()
        return cos.to(dtype=x.dtype), sin.to(dtype=x.dtype)


def rotate_half(x):
    """Rotates half the hidden dims of the input."""
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    cos = cos.unsqueeze(unsqueeze_dim)
    sin = sin.unsqueeze(unsqueeze_dim)
    q_embed = (q * cos) + (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed


def repeat_kv(hidden_states: torch.Tensor, n_rep: int) -> torch.Tensor:
    batch, num_key_value_heads, slen, head_dim = hidden_states.shape
    if n_rep == 1:
        return hidden_states
    hidden_states = hidden_states[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim)
    return hidden_states.reshape(batch, num_key_value_heads * n_rep, slen, head_dim)


class LlamaMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class LlamaAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.q_proj = nn.Linear(config.hidden_size, config.num_attention_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.num_key_value_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.num_key_value_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * self.head_dim, config.hidden_size, bias=False)

    def forward(self, hidden_states, position_embeddings, attention_mask=None, past_key_value=None, cache_position=None):
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        query_states = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        key_states = self.k_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        cos, sin = position_embeddings
        query_states, key_states = apply_rotary_pos_emb(query_states, key_states, cos, sin)
        if past_key_value is not None:
            cache_kwargs = {"sin": sin, "cos": cos, "cache_position": cache_position}
            key_states, value_states = past_key_value.update(key_states, value_states, self.layer_idx, cache_kwargs)
        key_states = repeat_kv(key_states, self.num_key_value_groups)
        value_states = repeat_kv(value_states, self.num_key_value_groups)
        causal_mask = attention_mask
        if attention_mask is not None:
            causal_mask = attention_mask[:, :, :, : key_states.shape[-2]]
        if self.config.attn == "eager":
            attn_weights = torch.matmul(query_states, key_states.transpose(2, 3)) / math.sqrt(self.head_dim)
            if causal_mask is not None:
                attn_weights = attn_weights + causal_mask
            attn_weights = nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query_states.dtype)
            attn_output = torch.matmul(attn_weights, value_states)
        else:
            is_causal = True if causal_mask is None and query_states.shape[2] > 1 else False
            attn_output = torch.nn.functional.scaled_dot_product_attention(
                query_states.contiguous(), key_states.contiguous(), value_states.contiguous(), attn_mask=causal_mask, is_causal=is_causal)
        attn_output = attn_output.transpose(1, 2).contiguous().reshape(*input_shape, -1)
        return self.o_proj(attn_output)


class LlamaDecoderLayer(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.self_attn = LlamaAttention(config, layer_idx)
        self.mlp = LlamaMLP(config)
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, hidden_states, **kwargs):
        residual = hidden_states
        hidden_states = self.self_attn(self.input_layernorm(hidden_states), **kwargs)
        hidden_states = residual + hidden_states
        residual = hidden_states
        return residual + self.mlp(self.post_attention_layernorm(hidden_states))


class LlamaForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id),
            "layers": nn.ModuleList([LlamaDecoderLayer(config, i) for i in range(config.num_hidden_layers)]),
            "norm": LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps),
            "rotary_emb": LlamaRotaryEmbedding(config),
        })
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.weight.data.normal_(mean=0.0, std=0.02)
            elif isinstance(module, nn.Embedding):
                module.weight.data.normal_(mean=0.0, std=0.02)
                if module.padding_idx is not None:
                    module.weight.data[module.padding_idx].zero_()

    @staticmethod
    def _prepare_4d_causal_attention_mask(attention_mask, sequence_length, target_length, dtype, cache_position, batch_size):
        min_dtype = torch.finfo(dtype).min
        causal_mask = torch.full((sequence_length, target_length), fill_value=min_dtype, dtype=dtype)
        if sequence_length != 1:
            causal_mask = torch.triu(causal_mask, diagonal=1)
        causal_mask *= torch.arange(target_length) > cache_position.reshape(-1, 1)
        causal_mask = causal_mask[None, None, :, :].expand(batch_size, 1, -1, -1)
        if attention_mask is not None:
            causal_mask = causal_mask.clone()  # copy to contiguous memory for in-place edit
            mask_length = attention_mask.shape[-1]
            padding_mask = causal_mask[:, :, :, :mask_length] + attention_mask[:, None, None, :]
            padding_mask = padding_mask == 0
            causal_mask[:, :, :, :mask_length] = causal_mask[:, :, :, :mask_length].masked_fill(padding_mask, min_dtype)
        return causal_mask

    def forward(self, input_ids, attention_mask=None, past_key_values=None, labels=None, cache_position=None, target_length=None):
        hidden_states = self.model["embed_tokens"](input_ids)
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        if cache_position is None:
            cache_position = torch.arange(past, past + input_ids.shape[1], device=input_ids.device)
        position_ids = cache_position.unsqueeze(0)
        causal_mask = self._prepare_4d_causal_attention_mask(
            attention_mask, input_ids.shape[1], target_length or int(past) + input_ids.shape[1], hidden_states.dtype, cache_position, input_ids.shape[0])
        position_embeddings = self.model.rotary_emb(hidden_states, position_ids) if hasattr(self.model, "rotary_emb") else self.model["rotary_emb"](hidden_states, position_ids)
        for decoder_layer in self.model["layers"][: self.config.num_hidden_layers]:
            hidden_states = decoder_layer(hidden_states, position_embeddings=position_embeddings, attention_mask=causal_mask,
                                          past_key_value=past_key_values, cache_position=cache_position)
        logits = self.lm_head(self.model["norm"](hidden_states))
        loss = None
        if labels is not None:
            logits = logits.float()
            labels = nn.functional.pad(labels, (0, 1), value=-100)
            shift_labels = labels[..., 1:].contiguous()
            loss = nn.functional.cross_entropy(logits.view(-1, self.config.vocab_size), shift_labels.view(-1), ignore_index=-100, reduction="mean")
        return loss, logits


def program():
    config = LlamaConfig(vocab_size=70, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         rms_norm_eps=1e-6, rope_theta=10000.0, pad_token_id=0, attn="eager")
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    yield "initial", model
    yield "frequencies", model.model["rotary_emb"].inv_freq
    input_ids = torch.randint(1, 70, (2, 11))
    attention_mask = torch.ones(2, 11, dtype=torch.long)
    attention_mask[0, 8:] = 0
    labels = input_ids.masked_fill(attention_mask == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10, eta_min=1e-5)
    losses = []
    for step in range(3):
        config["attn"] = "eager" if step < 2 else "sdpa"
        loss, logits = model(input_ids, attention_mask, labels=labels)
        loss.backward()
        if step == 0:
            yield "logits", logits
            yield "gradients", model
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=2.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.detach().float())
    yield "losses", torch.stack(losses)
    model.eval()
    with torch.no_grad():
        full = model(input_ids)[1]
        past = DynamicCache()
        pieces = [model(part, past_key_values=past)[1] for part in input_ids.split([6, 1, 1, 3], dim=1)]
        yield "cached", [torch.cat(pieces, 1), full]
        past.reorder_cache(torch.tensor([1, 1]))
        yield "reordered", model(input_ids[:, :1], past_key_values=past)[1]
        static = StaticCache(config, 2, 16)
        ids, position = input_ids[:, :4], torch.arange(4)
        generated = [ids]
        for _ in range(5):
            logits = model(ids, past_key_values=static, cache_position=position, target_length=16)[1]
            ids = logits[:, -1:].argmax(-1)
            position = position[-1:] + 1
            generated.append(ids)
        yield "generated with a static cache", torch.cat(generated, dim=-1)
        yield "length", static.get_seq_length()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        yield "autocast", model(input_ids)[1].dtype
    model.to(torch.bfloat16)
    yield "dtypes", sorted({str(p.dtype) for p in model.parameters()})
