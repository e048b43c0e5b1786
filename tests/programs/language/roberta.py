"""RoBERTa-like encoder: positions counted from padding, an LM head for masked tokens only, classification heads; fairseq's idioms."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def create_position_ids_from_input_ids(input_ids, padding_idx, past_key_values_length=0):
    # The series of casts and type-conversions here are carefully balanced to both work with ONNX export and XLA.
    mask = input_ids.ne(padding_idx).int()
    incremental_indices = (torch.cumsum(mask, dim=1).type_as(mask) + past_key_values_length) * mask
    return incremental_indices.long() + padding_idx


def PositionalEmbedding(num_embeddings, embedding_dim, padding_idx):
    m = nn.Embedding(num_embeddings + padding_idx + 1, embedding_dim, padding_idx)
    nn.init.normal_(m.weight, mean=0, std=embedding_dim ** -0.5)
    nn.init.constant_(m.weight[padding_idx], 0)
    return m


def init_bert_params(module):
    def normal_(data):
        # with FSDP, module params will be on CUDA, so we cast them back to CPU
        data.copy_(data.cpu().normal_(mean=0.0, std=0.02).to(data.device))

    if isinstance(module, nn.Linear):
        normal_(module.weight.data)
        if module.bias is not None:
            module.bias.data.zero_()
    if isinstance(module, nn.Embedding):
        normal_(module.weight.data)
        if module.padding_idx is not None:
            module.weight.data[module.padding_idx].zero_()
    if isinstance(module, MultiheadAttention):
        normal_(module.q_proj.weight.data)
        normal_(module.k_proj.weight.data)
        normal_(module.v_proj.weight.data)


class MultiheadAttention(nn.Module):
    """Time x Batch x Channel, as in fairseq."""

    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout_module = nn.Dropout(dropout)
        self.head_dim = embed_dim // num_heads
        assert self.head_dim * num_heads == self.embed_dim, "embed_dim must be divisible by num_heads"
        self.scaling = self.head_dim ** -0.5
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.xavier_uniform_(self.k_proj.weight, gain=1 / math.sqrt(2))
        nn.init.xavier_uniform_(self.v_proj.weight, gain=1 / math.sqrt(2))
        nn.init.xavier_uniform_(self.q_proj.weight, gain=1 / math.sqrt(2))
        nn.init.xavier_uniform_(self.out_proj.weight)
        if self.out_proj.bias is not None:
            nn.init.constant_(self.out_proj.bias, 0.0)

    def forward(self, query, key_padding_mask=None):
        tgt_len, bsz, embed_dim = query.size()
        q = self.q_proj(query)
        k = self.k_proj(query)
        v = self.v_proj(query)
        q *= self.scaling
        q = q.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        k = k.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        v = v.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        src_len = k.size(1)
        attn_weights = torch.bmm(q, k.transpose(1, 2))
        assert list(attn_weights.size()) == [bsz * self.num_heads, tgt_len, src_len]
        if key_padding_mask is not None:
            attn_weights = attn_weights.view(bsz, self.num_heads, tgt_len, src_len)
            attn_weights = attn_weights.masked_fill(key_padding_mask.unsqueeze(1).unsqueeze(2).to(torch.bool), float("-inf"))
            attn_weights = attn_weights.view(bsz * self.num_heads, tgt_len, src_len)
        attn_weights_float = F.softmax(attn_weights, dim=-1, dtype=torch.float32)
        attn_weights = attn_weights_float.type_as(attn_weights)
        attn_probs = self.dropout_module(attn_weights)
        attn = torch.bmm(attn_probs, v)
        attn = attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
        return self.out_proj(attn), attn_weights_float.view(bsz, self.num_heads, tgt_len, src_len).transpose(1, 0).mean(dim=0)


class TransformerSentenceEncoderLayer(nn.Module):
    def __init__(self, embedding_dim, ffn_embedding_dim, heads, dropout=0.1):
        super().__init__()
        self.self_attn = MultiheadAttention(embedding_dim, heads, dropout)
        self.self_attn_layer_norm = nn.LayerNorm(embedding_dim)
        self.fc1 = nn.Linear(embedding_dim, ffn_embedding_dim)
        self.fc2 = nn.Linear(ffn_embedding_dim, embedding_dim)
        self.final_layer_norm = nn.LayerNorm(embedding_dim)
        self.dropout = dropout

    def forward(self, x, self_attn_padding_mask=None):
        residual = x
        x, attn = self.self_attn(x, key_padding_mask=self_attn_padding_mask)
        x = F.dropout(x, p=self.dropout, training=self.training)
        x = residual + x
        x = self.self_attn_layer_norm(x)
        residual = x
        x = F.gelu(self.fc1(x))
        x = self.fc2(x)
        x = F.dropout(x, p=self.dropout, training=self.training)
        x = residual + x
        x = self.final_layer_norm(x)
        return x, attn


class RobertaLMHead(nn.Module):
    """Head for masked language modeling."""

    def __init__(self, embed_dim, output_dim, activation_fn, weight=None):
        super().__init__()
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.activation_fn = activation_fn
        self.layer_norm = nn.LayerNorm(embed_dim)
        if weight is None:
            weight = nn.Linear(embed_dim, output_dim, bias=False).weight
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(output_dim))

    def forward(self, features, masked_tokens=None, **kwargs):
        # Only project the masked tokens while training, saves both memory and computation
        if masked_tokens is not None:
            features = features[masked_tokens, :]
        x = self.dense(features)
        x = self.activation_fn(x)
        x = self.layer_norm(x)
        x = F.linear(x, self.weight) + self.bias
        return x


class RobertaModel(nn.Module):
    def __init__(self, vocab=60, dim=24, ffn=48, heads=3, layers=2, padding_idx=1, max_positions=30):
        super().__init__()
        self.padding_idx = padding_idx
        self.embed_tokens = nn.Embedding(vocab, dim, padding_idx)
        self.embed_positions = PositionalEmbedding(max_positions, dim, padding_idx)
        self.emb_layer_norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList([])
        self.layers.extend([TransformerSentenceEncoderLayer(dim, ffn, heads) for _ in range(layers)])
        self.lm_head = RobertaLMHead(dim, vocab, F.gelu, weight=self.embed_tokens.weight)
        self.classification_heads = nn.ModuleDict()
        self.apply(init_bert_params)

    def register_classification_head(self, name, num_classes, inner_dim):
        self.classification_heads[name] = nn.Sequential(nn.Dropout(0.1), nn.Linear(24, inner_dim), nn.Tanh(), nn.Linear(inner_dim, num_classes))

    def extract_features(self, tokens):
        padding_mask = tokens.eq(self.padding_idx)
        x = self.embed_tokens(tokens)
        x = x + self.embed_positions(create_position_ids_from_input_ids(tokens, self.padding_idx))
        x = self.emb_layer_norm(x)
        x = F.dropout(x, p=0.1, training=self.training)
        if padding_mask.any():
            x = x * (1 - padding_mask.unsqueeze(-1).type_as(x))
        x = x.transpose(0, 1)
        inner_states = [x]
        for layer in self.layers:
            x, attn = layer(x, self_attn_padding_mask=padding_mask if padding_mask.any() else None)
            inner_states.append(x)
        return x.transpose(0, 1), {"inner_states": inner_states, "attn": attn}

    def forward(self, src_tokens, masked_tokens=None, classification_head_name=None, features_only=False):
        x, extra = self.extract_features(src_tokens)
        if classification_head_name is not None:
            x = self.classification_heads[classification_head_name](x[:, 0, :])
        elif not features_only:
            x = self.lm_head(x, masked_tokens=masked_tokens)
        return x, extra

    def upgrade_state_dict_named(self, state_dict, name):
        cur_state = self.classification_heads.state_dict()
        for k, v in cur_state.items():
            if "classification_heads." + k not in state_dict:
                state_dict["classification_heads." + k] = v


def move_to_cuda(sample):
    def _apply(x):
        if torch.is_tensor(x):
            return x.cuda() if torch.cuda.is_available() else x
        elif isinstance(x, dict):
            return {key: _apply(value) for key, value in x.items()}
        elif isinstance(x, list):
            return [_apply(x) for x in x]
        else:
            return x
    return _apply(sample)


def polynomial_decay(step, warmup, total, lr, power=1.0):
    if step < warmup:
        return lr * (step + 1) / warmup
    return lr * (1 - (step - warmup) / (total - warmup)) ** power


def program():
    torch.manual_seed(1)
    model = RobertaModel()
    yield "initial", model
    tokens = torch.randint(4, 60, (4, 13))
    tokens[:, 0] = 0
    for i, n in enumerate([13, 8, 10, 5]):
        tokens[i, n - 1:] = 2
        tokens[i, n:] = 1
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)
    losses = []
    for step in range(3):
        sample = move_to_cuda({"net_input": {"src_tokens": tokens.clone()}, "ntokens": int(tokens.ne(1).sum()), "nested": [tokens]})
        src = sample["net_input"]["src_tokens"]
        mask = (torch.rand(src.shape) < 0.3) & src.ge(4)
        target = src.clone()
        src[mask] = 3
        sample_size = mask.int().sum()
        masked_tokens = torch.where(mask.any(), mask, mask.new([True]))
        logits = model(**sample["net_input"], masked_tokens=masked_tokens)[0]
        targets = target[masked_tokens]
        loss = F.nll_loss(F.log_softmax(logits.view(-1, logits.size(-1)), dim=-1, dtype=torch.float32), targets.view(-1),
                          reduction="sum", ignore_index=model.padding_idx)
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            if p.grad is not None:
                p.grad.data.div_(sample_size)
        for group in optimizer.param_groups:
            group["lr"] = polynomial_decay(step, 2, 10, 1e-3)
        if step == 0:
            yield "gradients", model
        optimizer.step()
        losses.append((loss.data / sample_size / math.log(2)).item())
    yield "losses in base 2", losses
    model.register_classification_head("mnli", 3, 16)
    state = model.state_dict()
    state = {k: v for k, v in state.items() if "mnli" not in k}
    model.upgrade_state_dict_named(state, "")
    model.load_state_dict(state, strict=True)
    model.eval()
    with torch.no_grad():
        x, extra = model(tokens, classification_head_name="mnli")
    yield "class scores", x
    yield "inner states", extra["inner_states"]
    yield "attention", extra["attn"]
    half = model.bfloat16()
    yield "half", [half(tokens, features_only=True)[0].dtype, next(half.parameters()).dtype]
