"""T5: relative position buckets, RMS layer norm without mean, no scaling of attention, encoder and decoder with shared embeddings, beam search."""
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import CrossEntropyLoss


class T5Config:
    vocab_size, d_model, d_kv, d_ff, num_layers, num_heads = 60, 24, 8, 40, 2, 3
    relative_attention_num_buckets, relative_attention_max_distance = 8, 20
    dropout_rate, layer_norm_epsilon, initializer_factor = 0.1, 1e-6, 1.0
    is_decoder, pad_token_id, decoder_start_token_id, eos_token_id = False, 0, 0, 1
    feed_forward_proj = "gated-gelu"


class T5LayerNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        """
        Construct a layernorm module in the T5 style. No bias and no subtraction of mean.
        """
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        # convert into half-precision if necessary
        if self.weight.dtype in [torch.float16, torch.bfloat16]:
            hidden_states = hidden_states.to(self.weight.dtype)
        return self.weight * hidden_states


class T5DenseGatedActDense(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wi_0 = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.wi_1 = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.wo = nn.Linear(config.d_ff, config.d_model, bias=False)
        self.dropout = nn.Dropout(config.dropout_rate)
        self.act = nn.GELU(approximate="tanh")

    def forward(self, hidden_states):
        hidden_gelu = self.act(self.wi_0(hidden_states))
        hidden_linear = self.wi_1(hidden_states)
        hidden_states = hidden_gelu * hidden_linear
        hidden_states = self.dropout(hidden_states)
        return self.wo(hidden_states)


class T5LayerFF(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.DenseReluDense = T5DenseGatedActDense(config)
        self.layer_norm = T5LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout_rate)

    def forward(self, hidden_states):
        forwarded_states = self.DenseReluDense(self.layer_norm(hidden_states))
        return hidden_states + self.dropout(forwarded_states)


class T5Attention(nn.Module):
    def __init__(self, config, has_relative_attention_bias=False):
        super().__init__()
        self.is_decoder = config.is_decoder
        self.has_relative_attention_bias = has_relative_attention_bias
        self.relative_attention_num_buckets = config.relative_attention_num_buckets
        self.relative_attention_max_distance = config.relative_attention_max_distance
        self.key_value_proj_dim = config.d_kv
        self.n_heads = config.num_heads
        self.dropout = config.dropout_rate
        self.inner_dim = self.n_heads * self.key_value_proj_dim
        # Mesh TensorFlow initialization to avoid scaling before softmax
        self.q = nn.Linear(config.d_model, self.inner_dim, bias=False)
        self.k = nn.Linear(config.d_model, self.inner_dim, bias=False)
        self.v = nn.Linear(config.d_model, self.inner_dim, bias=False)
        self.o = nn.Linear(self.inner_dim, config.d_model, bias=False)
        if self.has_relative_attention_bias:
            self.relative_attention_bias = nn.Embedding(self.relative_attention_num_buckets, self.n_heads)

    @staticmethod
    def _relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
        relative_buckets = 0
        if bidirectional:
            num_buckets //= 2
            relative_buckets += (relative_position > 0).to(torch.long) * num_buckets
            relative_position = torch.abs(relative_position)
        else:
            relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))
        # now relative_position is in the range [0, inf)
        max_exact = num_buckets // 2
        is_small = relative_position < max_exact
        # The other half of the buckets are for logarithmically bigger bins in positions up to max_distance
        relative_position_if_large = max_exact + (
            torch.log(relative_position.float() / max_exact)
            / math.log(max_distance / max_exact)
            * (num_buckets - max_exact)
        ).to(torch.long)
        relative_position_if_large = torch.min(
            relative_position_if_large, torch.full_like(relative_position_if_large, num_buckets - 1)
        )
        relative_buckets += torch.where(is_small, relative_position, relative_position_if_large)
        return relative_buckets

    def compute_bias(self, query_length, key_length, device=None):
        """Compute binned relative position bias"""
        if device is None:
            device = self.relative_attention_bias.weight.device
        context_position = torch.arange(query_length, dtype=torch.long, device=device)[:, None]
        memory_position = torch.arange(key_length, dtype=torch.long, device=device)[None, :]
        relative_position = memory_position - context_position  # shape (query_length, key_length)
        relative_position_bucket = self._relative_position_bucket(
            relative_position,
            bidirectional=(not self.is_decoder),
            num_buckets=self.relative_attention_num_buckets,
            max_distance=self.relative_attention_max_distance,
        )
        values = self.relative_attention_bias(relative_position_bucket)  # shape (query_length, key_length, num_heads)
        values = values.permute([2, 0, 1]).unsqueeze(0)  # shape (1, num_heads, query_length, key_length)
        return values

    def forward(self, hidden_states, mask=None, key_value_states=None, position_bias=None, past_key_value=None):
        batch_size, seq_length = hidden_states.shape[:2]
        real_seq_length = seq_length + (past_key_value[0].shape[2] if past_key_value is not None else 0)
        key_length = real_seq_length if key_value_states is None else key_value_states.shape[1]

        def shape(states):
            return states.view(batch_size, -1, self.n_heads, self.key_value_proj_dim).transpose(1, 2)

        def unshape(states):
            return states.transpose(1, 2).contiguous().view(batch_size, -1, self.inner_dim)

        query_states = shape(self.q(hidden_states))
        if key_value_states is None:
            key_states, value_states = shape(self.k(hidden_states)), shape(self.v(hidden_states))
            if past_key_value is not None:
                key_states = torch.cat([past_key_value[0], key_states], dim=2)
                value_states = torch.cat([past_key_value[1], value_states], dim=2)
        else:
            key_states, value_states = shape(self.k(key_value_states)), shape(self.v(key_value_states))
        present = (key_states, value_states) if self.is_decoder and key_value_states is None else None
        scores = torch.matmul(query_states, key_states.transpose(3, 2))
        if position_bias is None:
            if not self.has_relative_attention_bias:
                position_bias = torch.zeros((1, self.n_heads, real_seq_length, key_length), device=scores.device, dtype=scores.dtype)
            else:
                position_bias = self.compute_bias(real_seq_length, key_length, device=scores.device)
            # if key and values are already calculated we want only the last query position bias
            if past_key_value is not None:
                position_bias = position_bias[:, :, -hidden_states.size(1) :, :]
            if mask is not None:
                position_bias = position_bias + mask
        scores += position_bias
        attn_weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        attn_weights = nn.functional.dropout(attn_weights, p=self.dropout, training=self.training)
        return self.o(unshape(torch.matmul(attn_weights, value_states))), present, position_bias


class T5Block(nn.Module):
    def __init__(self, config, has_relative_attention_bias=False):
        super().__init__()
        self.is_decoder = config.is_decoder
        self.layer = nn.ModuleList()
        self.layer.append(nn.ModuleDict({"SelfAttention": T5Attention(config, has_relative_attention_bias), "layer_norm": T5LayerNorm(config.d_model)}))
        if self.is_decoder:
            self.layer.append(nn.ModuleDict({"EncDecAttention": T5Attention(config), "layer_norm": T5LayerNorm(config.d_model)}))
        self.layer.append(T5LayerFF(config))
        self.dropout = nn.Dropout(config.dropout_rate)

    def forward(self, hidden_states, attention_mask, position_bias, encoder_hidden_states, encoder_mask, encoder_bias, past):
        attention = self.layer[0]
        out, present, position_bias = attention["SelfAttention"](attention["layer_norm"](hidden_states), attention_mask, None, position_bias, past)
        hidden_states = hidden_states + self.dropout(out)
        if self.is_decoder:
            attention = self.layer[1]
            out, _, encoder_bias = attention["EncDecAttention"](attention["layer_norm"](hidden_states), encoder_mask, encoder_hidden_states, encoder_bias)
            hidden_states = hidden_states + self.dropout(out)
        hidden_states = self.layer[-1](hidden_states)
        # clamp inf values to enable fp16 training
        if hidden_states.dtype == torch.float16 and torch.isinf(hidden_states).any():
            clamp_value = torch.finfo(hidden_states.dtype).max - 1000
            hidden_states = torch.clamp(hidden_states, min=-clamp_value, max=clamp_value)
        return hidden_states, present, position_bias, encoder_bias


class T5Stack(nn.Module):
    def __init__(self, config, embed_tokens):
        super().__init__()
        self.config = config
        self.embed_tokens = embed_tokens
        self.block = nn.ModuleList([T5Block(config, has_relative_attention_bias=bool(i == 0)) for i in range(config.num_layers)])
        self.final_layer_norm = T5LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout_rate)

    def forward(self, input_ids, attention_mask=None, encoder_hidden_states=None, encoder_attention_mask=None, past_key_values=None):
        batch_size, seq_length = input_ids.size()
        hidden_states = self.dropout(self.embed_tokens(input_ids))
        past_length = past_key_values[0][0].shape[2] if past_key_values is not None else 0
        mask_seq_length = past_length + seq_length
        if attention_mask is None:
            attention_mask = torch.ones(batch_size, mask_seq_length)
        if self.config.is_decoder:
            seq_ids = torch.arange(mask_seq_length)
            causal_mask = seq_ids[None, None, :].repeat(batch_size, mask_seq_length, 1) <= seq_ids[None, :, None]
            extended = causal_mask[:, None, -seq_length:, :].to(attention_mask.dtype) * attention_mask[:, None, None, :]
        else:
            extended = attention_mask[:, None, None, :]
        extended = (1.0 - extended.float()) * torch.finfo(torch.float32).min
        encoder_extended = None
        if self.config.is_decoder and encoder_attention_mask is not None:
            encoder_extended = (1.0 - encoder_attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        position_bias = encoder_decoder_position_bias = None
        presents = ()
        for i, layer_module in enumerate(self.block):
            past = past_key_values[i] if past_key_values is not None else None
            hidden_states, present, position_bias, encoder_decoder_position_bias = layer_module(
                hidden_states, extended, position_bias, encoder_hidden_states, encoder_extended, encoder_decoder_position_bias, past)
            presents += (present,)
        return self.dropout(self.final_layer_norm(hidden_states)), presents


class T5ForConditionalGeneration(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model_dim = config.d_model
        self.shared = nn.Embedding(config.vocab_size, config.d_model)
        encoder_config = copy.deepcopy(config)
        encoder_config.is_decoder = False
        self.encoder = T5Stack(encoder_config, self.shared)
        decoder_config = copy.deepcopy(config)
        decoder_config.is_decoder = True
        self.decoder = T5Stack(decoder_config, self.shared)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        factor = self.config.initializer_factor
        if isinstance(module, T5LayerNorm):
            module.weight.data.fill_(factor * 1.0)
        elif isinstance(module, T5DenseGatedActDense):
            module.wi_0.weight.data.normal_(mean=0.0, std=factor * ((self.config.d_model) ** -0.5))
            module.wi_1.weight.data.normal_(mean=0.0, std=factor * ((self.config.d_model) ** -0.5))
            module.wo.weight.data.normal_(mean=0.0, std=factor * ((self.config.d_ff) ** -0.5))
        elif isinstance(module, T5Attention):
            d_model, key_value_proj_dim, n_heads = self.config.d_model, self.config.d_kv, self.config.num_heads
            module.q.weight.data.normal_(mean=0.0, std=factor * ((d_model * key_value_proj_dim) ** -0.5))
            module.k.weight.data.normal_(mean=0.0, std=factor * (d_model**-0.5))
            module.v.weight.data.normal_(mean=0.0, std=factor * (d_model**-0.5))
            module.o.weight.data.normal_(mean=0.0, std=factor * ((n_heads * key_value_proj_dim) ** -0.5))
            if module.has_relative_attention_bias:
                module.relative_attention_bias.weight.data.normal_(mean=0.0, std=factor * ((d_model) ** -0.5))

    def _shift_right(self, input_ids):
        shifted_input_ids = input_ids.new_zeros(input_ids.shape)
        shifted_input_ids[..., 1:] = input_ids[..., :-1].clone()
        shifted_input_ids[..., 0] = self.config.decoder_start_token_id
        # replace possible -100 values in labels by `pad_token_id`
        shifted_input_ids.masked_fill_(shifted_input_ids == -100, self.config.pad_token_id)
        assert torch.all(shifted_input_ids >= 0).item()
        return shifted_input_ids

    def forward(self, input_ids=None, attention_mask=None, decoder_input_ids=None, labels=None, encoder_outputs=None, past_key_values=None):
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask)[0]
        if labels is not None and decoder_input_ids is None:
            decoder_input_ids = self._shift_right(labels)
        sequence_output, past = self.decoder(decoder_input_ids, None, encoder_outputs, attention_mask, past_key_values)
        # Rescale output before projecting on vocab
        sequence_output = sequence_output * (self.model_dim**-0.5)
        lm_logits = self.lm_head(sequence_output)
        loss = None
        if labels is not None:
            loss = CrossEntropyLoss(ignore_index=-100)(lm_logits.view(-1, lm_logits.size(-1)), labels.view(-1))
        return loss, lm_logits, past


@torch.no_grad()
def beam_search(model, input_ids, attention_mask, num_beams=3, max_length=7, length_penalty=1.0):
    batch_size = input_ids.shape[0]
    encoder_outputs = model.encoder(input_ids, attention_mask)[0].repeat_interleave(num_beams, dim=0)
    attention_mask = attention_mask.repeat_interleave(num_beams, dim=0)
    ids = torch.full((batch_size * num_beams, 1), model.config.decoder_start_token_id, dtype=torch.long)
    beam_scores = torch.zeros((batch_size, num_beams), dtype=torch.float)
    beam_scores[:, 1:] = -1e9
    beam_scores = beam_scores.view((batch_size * num_beams,))
    past = None
    finished = [[] for _ in range(batch_size)]
    while ids.shape[1] < max_length:
        _, logits, past = model(attention_mask=attention_mask, decoder_input_ids=ids[:, -1:], encoder_outputs=encoder_outputs, past_key_values=past)
        next_token_scores = nn.functional.log_softmax(logits[:, -1, :], dim=-1)
        next_token_scores = next_token_scores + beam_scores[:, None].expand_as(next_token_scores)
        vocab_size = next_token_scores.shape[-1]
        next_token_scores = next_token_scores.view(batch_size, num_beams * vocab_size)
        next_token_scores, next_tokens = torch.topk(next_token_scores, 2 * num_beams, dim=1, largest=True, sorted=True)
        next_indices = torch.div(next_tokens, vocab_size, rounding_mode="floor")
        next_tokens = next_tokens % vocab_size
        new_scores = torch.zeros((batch_size, num_beams))
        new_tokens = torch.zeros((batch_size, num_beams), dtype=torch.long)
        new_indices = torch.zeros((batch_size, num_beams), dtype=torch.long)
        for b in range(batch_size):
            beam_idx = 0
            for token, score, index in zip(next_tokens[b], next_token_scores[b], next_indices[b]):
                if token.item() == model.config.eos_token_id:
                    hyp = ids[b * num_beams + index]
                    finished[b].append((score.item() / (hyp.shape[-1] ** length_penalty), hyp.tolist()))
                else:
                    new_scores[b, beam_idx] = score
                    new_tokens[b, beam_idx] = token
                    new_indices[b, beam_idx] = b * num_beams + index
                    beam_idx += 1
                if beam_idx == num_beams:
                    break
        beam_scores, beam_tokens, beam_indices = new_scores.view(-1), new_tokens.view(-1), new_indices.view(-1)
        ids = torch.cat([ids[beam_indices, :], beam_tokens.unsqueeze(-1)], dim=-1)
        past = tuple(tuple(state.index_select(0, beam_indices) for state in layer) for layer in past)
    return ids, beam_scores, finished


def program():
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config())
    yield "initial", model
    input_ids = torch.randint(2, 60, (2, 13))
    attention_mask = torch.ones(2, 13)
    attention_mask[1, 9:] = 0
    labels = torch.randint(2, 60, (2, 6))
    labels[0, 4:] = -100
    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-2)
    losses = []
    for step in range(3):
        loss, logits, _ = model(input_ids, attention_mask, labels=labels)
        loss.backward()
        if step == 0:
            yield "logits", logits
            yield "gradients", model
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    yield "losses", losses
    model.eval()
    yield "beams", beam_search(model, input_ids, attention_mask)
    yield "buckets", T5Attention._relative_position_bucket(torch.arange(-40, 40), bidirectional=False, num_buckets=32, max_distance=128)
