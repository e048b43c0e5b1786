"""Attention of other kinds: linear (elu + 1, causal by cumsum), Performer's random features, Reformer-like LSH buckets, ALiBi, local windows, Linformer, nn.MultiheadAttention with other key and value sizes."""
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import einsum, nn


def exists(val):
    return val is not None


def default(val, d):
    return val if exists(val) else d


def orthogonal_matrix_chunk(cols, device=None):
    unstructured_block = torch.randn((cols, cols), device=device)
    q, r = torch.linalg.qr(unstructured_block.cpu(), mode="reduced")
    q, r = map(lambda t: t.to(device), (q, r))
    return q.t()


def gaussian_orthogonal_random_matrix(nb_rows, nb_columns, scaling=0, device=None):
    nb_full_blocks = int(nb_rows / nb_columns)
    block_list = []
    for _ in range(nb_full_blocks):
        q = orthogonal_matrix_chunk(nb_columns, device=device)
        block_list.append(q)
    remaining_rows = nb_rows - nb_full_blocks * nb_columns
    if remaining_rows > 0:
        q = orthogonal_matrix_chunk(nb_columns, device=device)
        block_list.append(q[:remaining_rows])
    final_matrix = torch.cat(block_list)
    if scaling == 0:
        multiplier = torch.randn((nb_rows, nb_columns), device=device).norm(dim=1)
    elif scaling == 1:
        multiplier = math.sqrt((float(nb_columns))) * torch.ones((nb_rows,), device=device)
    return torch.diag(multiplier) @ final_matrix


def softmax_kernel(data, *, projection_matrix, is_query, normalize_data=True, eps=1e-4):
    b, h, *_ = data.shape
    data_normalizer = (data.shape[-1] ** -0.25) if normalize_data else 1.
    ratio = (projection_matrix.shape[0] ** -0.5)
    projection = projection_matrix[None, None].expand(b, h, -1, -1)
    projection = projection.type_as(data)
    data_dash = torch.einsum('...id,...jd->...ij', (data_normalizer * data), projection)
    diag_data = data ** 2
    diag_data = torch.sum(diag_data, dim=-1)
    diag_data = (diag_data / 2.0) * (data_normalizer ** 2)
    diag_data = diag_data.unsqueeze(dim=-1)
    if is_query:
        data_dash = ratio * (torch.exp(data_dash - diag_data - torch.amax(data_dash, dim=-1, keepdim=True).detach()) + eps)
    else:
        data_dash = ratio * (torch.exp(data_dash - diag_data - torch.amax(data_dash, dim=(-1, -2), keepdim=True).detach()) + eps)
    return data_dash.type_as(data)


def linear_attention(q, k, v):
    k_cumsum = k.sum(dim=-2)
    D_inv = 1. / torch.einsum('...nd,...d->...n', q, k_cumsum.type_as(q))
    context = torch.einsum('...nd,...ne->...de', k, v)
    out = torch.einsum('...de,...nd,...n->...ne', context, q, D_inv)
    return out


def causal_linear_attention_noncuda(q, k, v, chunk_size=4, eps=1e-6):
    last_k_cumsum = 0
    last_context_cumsum = 0
    outs = []
    for q, k, v in zip(*map(lambda t: t.chunk(chunk_size, dim=-2), (q, k, v))):
        k_cumsum = last_k_cumsum + k.cumsum(dim=-2)
        D_inv = 1. / torch.einsum('...nd,...nd->...n', q, k_cumsum.type_as(q) + eps)
        context = torch.einsum('...nd,...ne->...nde', k, v)
        context_cumsum = last_context_cumsum + context.cumsum(dim=-3)
        out = torch.einsum('...nde,...nd,...n->...ne', context_cumsum, q, D_inv)
        last_k_cumsum = k_cumsum[:, :, -1:]
        last_context_cumsum = context_cumsum[:, :, -1:]
        outs.append(out)
    return torch.cat(outs, dim=-2)


def get_slopes(n):
    def get_slopes_power_of_2(n):
        start = (2**(-2**-(math.log2(n)-3)))
        ratio = start
        return [start*ratio**i for i in range(n)]

    if math.log2(n).is_integer():
        return get_slopes_power_of_2(n)
    else:
        closest_power_of_2 = 2**math.floor(math.log2(n))
        return get_slopes_power_of_2(closest_power_of_2) + get_slopes(2*closest_power_of_2)[0::2][:n-closest_power_of_2]


def batched_index_select(values, indices):
    last_dim = values.shape[-1]
    return values.gather(1, indices[:, :, None].expand(-1, -1, last_dim))


def look_around(x, backward=1, forward=0, pad_value=-1, dim=2):
    t = x.shape[1]
    dims = (len(x.shape) - dim) * (0, 0)
    padded_x = F.pad(x, (*dims, backward, forward), value=pad_value)
    tensors = [padded_x[:, ind:(ind + t), ...] for ind in range(forward + backward + 1)]
    return torch.cat(tensors, dim=dim)


class LSHAttention(nn.Module):
    """lucidrains' Reformer: random rotations, argmax of [x, -x], sort by bucket, attend within chunks and one back, sort back."""

    def __init__(self, bucket_size=4, n_hashes=2, causal=True):
        super().__init__()
        self.bucket_size, self.n_hashes, self.causal = bucket_size, n_hashes, causal

    def hash_vectors(self, n_buckets, vecs):
        batch_size = vecs.shape[0]
        rotations_shape = (1, vecs.shape[-1], self.n_hashes, n_buckets // 2)
        random_rotations = torch.randn(rotations_shape, dtype=vecs.dtype).expand(batch_size, -1, -1, -1)
        rotated_vecs = torch.einsum('btf,bfhi->bhti', vecs, random_rotations)
        rotated_vecs = torch.cat([rotated_vecs, -rotated_vecs], dim=-1)
        buckets = torch.argmax(rotated_vecs, dim=-1)
        offsets = torch.arange(self.n_hashes)
        offsets = torch.reshape(offsets * n_buckets, (1, -1, 1))
        return torch.reshape(buckets + offsets, (batch_size, -1,))

    def forward(self, qk, v):
        batch_size, seqlen, dim = qk.shape
        n_buckets = seqlen // self.bucket_size
        buckets = self.hash_vectors(n_buckets, qk.detach())
        total_hashes = self.n_hashes
        ticker = torch.arange(total_hashes * seqlen).unsqueeze(0).expand_as(buckets)
        buckets_and_t = seqlen * buckets + (ticker % seqlen)
        sbuckets_and_t, sticker = buckets_and_t.sort(dim=-1)
        _, undo_sort = sticker.sort(dim=-1)
        del ticker
        st = (sticker % seqlen)
        sqk = batched_index_select(qk, st)
        sv = batched_index_select(v, st)
        chunk_size = total_hashes * n_buckets
        bq_t = bkv_t = torch.reshape(st, (batch_size, chunk_size, -1))
        bqk = torch.reshape(sqk, (batch_size, chunk_size, -1, dim))
        bv = torch.reshape(sv, (batch_size, chunk_size, -1, dim))
        bq = bqk
        bk = F.normalize(bqk, p=2, dim=-1).type_as(bq)

        def look_one_back(x):
            x_extra = torch.cat([x[:, -1:, ...], x[:, :-1, ...]], dim=1)
            return torch.cat([x, x_extra], dim=2)

        bk = look_one_back(bk)
        bv = look_one_back(bv)
        bkv_t = look_one_back(bkv_t)
        dots = torch.einsum('bhie,bhje->bhij', bq, bk) * (dim ** -0.5)
        masked_value = -torch.finfo(dots.dtype).max
        if self.causal:
            mask = bq_t[:, :, :, None] < bkv_t[:, :, None, :]
            dots.masked_fill_(mask, masked_value)
            del mask
        self_mask = bq_t[:, :, :, None] == bkv_t[:, :, None, :]
        dots.masked_fill_(self_mask, -5e4)
        del self_mask
        dots_logsumexp = torch.logsumexp(dots, dim=-1, keepdim=True)
        dots = torch.exp(dots - dots_logsumexp).type_as(dots)
        bo = torch.einsum('buij,buje->buie', dots, bv)
        so = torch.reshape(bo, (batch_size, -1, dim))
        slogits = torch.reshape(dots_logsumexp, (batch_size, -1,))
        o = batched_index_select(so, undo_sort)
        logits = slogits.gather(1, undo_sort)
        o = torch.reshape(o, (batch_size, total_hashes, seqlen, dim))
        logits = torch.reshape(logits, (batch_size, total_hashes, seqlen, 1))
        probs = torch.exp(logits - torch.logsumexp(logits, dim=1, keepdim=True))
        return torch.sum(o * probs, dim=1), buckets


class Attention(nn.Module):
    def __init__(self, dim, heads, kind):
        super().__init__()
        self.heads, self.kind = heads, kind
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim)
        if kind == "performer":
            create_projection = partial(gaussian_orthogonal_random_matrix, nb_rows=10, nb_columns=dim // heads)
            self.create_projection = create_projection
            self.register_buffer('projection_matrix', create_projection())
        if kind == "alibi":
            self.register_buffer("slopes", torch.Tensor(get_slopes(heads)))
        if kind == "linformer":
            self.proj_k = nn.Parameter(nn.init.xavier_normal_(torch.empty(16, 5)))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (t.reshape(b, n, self.heads, -1).transpose(1, 2) for t in self.to_qkv(x).chunk(3, dim=-1))
        scale = q.shape[-1] ** -0.5
        if self.kind == "elu":
            q, k = F.elu(q) + 1, F.elu(k) + 1
            out = causal_linear_attention_noncuda(q, k, v)
        elif self.kind == "performer":
            q = softmax_kernel(q, projection_matrix=self.projection_matrix, is_query=True)
            k = softmax_kernel(k, projection_matrix=self.projection_matrix, is_query=False)
            out = linear_attention(q, k, v)
        elif self.kind == "alibi":
            context_position = torch.arange(n)[:, None]
            memory_position = torch.arange(n)[None, :]
            relative_position = torch.abs(memory_position - context_position)
            alibi = self.slopes.unsqueeze(1).unsqueeze(1) * -1 * relative_position.unsqueeze(0).expand(self.heads, -1, -1)
            sim = einsum('b h i d, b h j d -> b h i j', q, k) * scale + alibi
            sim = sim.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.finfo(sim.dtype).max)
            out = einsum('b h i j, b h j d -> b h i d', sim.softmax(dim=-1), v)
        elif self.kind == "local":
            window = 4
            q, k, v = (t.flatten(0, 1).view(b * self.heads, n // window, window, -1) for t in (q, k, v))
            positions = torch.arange(n).view(1, n // window, window)
            bk, bv = look_around(k, pad_value=0.), look_around(v, pad_value=0.)
            bq_k = look_around(positions, pad_value=-1)
            sim = torch.einsum('b w i d, b w j d -> b w i j', q, bk) * scale
            mask = (positions[..., :, None] < bq_k[..., None, :]) | (bq_k[..., None, :] == -1)
            sim = sim.masked_fill(mask, torch.finfo(sim.dtype).min)
            out = torch.einsum('b w i j, b w j d -> b w i d', sim.softmax(-1), bv).reshape(b, self.heads, n, -1)
        elif self.kind == "linformer":
            k, v = (torch.einsum('bhnd,nk->bhkd', t, self.proj_k) for t in (k, v))
            out = (torch.einsum('bhnd,bhkd->bhnk', q, k) * scale).softmax(dim=-1) @ v
        return self.to_out(out.transpose(1, 2).reshape(b, n, d))


def program():
    torch.manual_seed(0)
    x = torch.randn(2, 16, 12)
    for kind in ("elu", "performer", "alibi", "local", "linformer"):
        attention = Attention(12, 3, kind)
        yield kind, attention
        out = attention(x)
        out.square().mean().backward()
        yield kind, [out, {n: p.grad for n, p in attention.named_parameters()}]
    qk, v = torch.randn(2, 16, 8, requires_grad=True), torch.randn(2, 16, 8, requires_grad=True)
    out, buckets = LSHAttention()(qk, v)
    out.sum().backward()
    yield "reformer", [out, buckets, qk.grad, v.grad]
    mha = nn.MultiheadAttention(12, 3, batch_first=True, add_bias_kv=True, kdim=6, vdim=7)
    out, weights = mha(x, torch.randn(2, 5, 6), torch.randn(2, 5, 7), average_attn_weights=False, key_padding_mask=torch.tensor([[False] * 5, [False] * 3 + [True] * 2]))
    out.sum().backward()
    yield "multihead", [out, weights]
    yield "multihead module", mha
