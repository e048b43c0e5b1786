"""RetNet: xPos rotations, multi-scale retention in its parallel, recurrent and chunkwise forms (a small public implementation)."""
import math

import torch
import torch.nn as nn


def fixed_pos_embedding(x):
    seq_len, dim = x.shape
    inv_freq = 1.0 / (10000 ** (torch.arange(0, dim) / dim))
    sinusoid_inp = torch.einsum("i , j -> i j", torch.arange(0, seq_len, dtype=torch.float), inv_freq).to(x)
    return torch.sin(sinusoid_inp), torch.cos(sinusoid_inp)


def rotate_every_two(x):
    x1 = x[:, :, ::2]
    x2 = x[:, :, 1::2]
    x = torch.stack((-x2, x1), dim=-1)
    if x.shape[-1] % 2 == 1:
        x2 = torch.concat((x2, torch.zeros_like(x2[:, :, :1])), dim=-1)
    return x.flatten(-2)


def duplicate_interleave(m):
    """A simple version of `torch.repeat_interleave` for duplicating a matrix while interleaving the copy."""
    dim0 = m.shape[0]
    m = m.view(-1, 1)
    m = m.repeat(1, 2)
    m = m.view(dim0, -1)
    return m


def apply_rotary_pos_emb(x, sin, cos, scale=1):
    sin, cos = map(lambda t: duplicate_interleave(t * scale), (sin, cos))
    return (x * cos[:, :x.shape[-1]]) + (rotate_every_two(x) * sin)[:, :, :x.shape[-1]]


class XPOS(nn.Module):
    def __init__(self, head_dim, scale_base=512):
        super().__init__()
        self.head_dim = head_dim
        self.scale_base = scale_base
        self.register_buffer("scale", (torch.arange(0, head_dim, 2) + 0.4 * head_dim) / (1.4 * head_dim))

    def forward(self, x, offset=0, downscale=False):
        length = x.shape[1]
        min_pos = 0
        max_pos = length + offset + min_pos
        scale = self.scale ** torch.arange(min_pos, max_pos, 1).to(self.scale).div(self.scale_base)[:, None]
        sin, cos = fixed_pos_embedding(scale)
        if scale.shape[0] > length:
            scale = scale[-length:]
            sin = sin[-length:]
            cos = cos[-length:]
        if downscale:
            scale = 1 / scale
        return apply_rotary_pos_emb(x, sin, cos, scale)


class SimpleRetention(nn.Module):
    def __init__(self, hidden_size, gamma, head_size=None, double_v_dim=False):
        super(SimpleRetention, self).__init__()
        self.hidden_size = hidden_size
        self.head_size = head_size if head_size is not None else hidden_size
        self.v_dim = self.head_size * 2 if double_v_dim else self.head_size
        self.gamma = gamma
        self.W_Q = nn.Parameter(torch.randn(hidden_size, self.head_size) / hidden_size)
        self.W_K = nn.Parameter(torch.randn(hidden_size, self.head_size) / hidden_size)
        self.W_V = nn.Parameter(torch.randn(hidden_size, self.v_dim) / hidden_size)
        self.xpos = XPOS(self.head_size)

    def forward(self, X):
        sequence_length = X.shape[1]
        D = self._get_D(sequence_length).to(self.W_Q.device)
        Q = (X @ self.W_Q)
        K = (X @ self.W_K)
        Q = self.xpos(Q)
        K = self.xpos(K, downscale=True)
        V = X @ self.W_V
        ret = (Q @ K.permute(0, 2, 1)) * D.unsqueeze(0)
        return ret @ V

    def forward_recurrent(self, x_n, s_n_1, n):
        Q = (x_n @ self.W_Q)
        K = (x_n @ self.W_K)
        Q = self.xpos(Q, n + 1)
        K = self.xpos(K, n + 1, downscale=True)
        V = x_n @ self.W_V
        s_n = self.gamma * s_n_1 + (K.transpose(-1, -2) @ V)
        return (Q @ s_n), s_n

    def forward_chunkwise(self, x_i, r_i_1, i):
        batch, chunk_size, _ = x_i.shape
        D = self._get_D(chunk_size)
        Q = (x_i @ self.W_Q)
        K = (x_i @ self.W_K)
        Q = self.xpos(Q, i * chunk_size)
        K = self.xpos(K, i * chunk_size, downscale=True)
        V = x_i @ self.W_V
        r_i = (K.transpose(-1, -2) @ (V * D[-1].view(1, chunk_size, 1))) + (self.gamma ** chunk_size) * r_i_1
        inner_chunk = ((Q @ K.transpose(-1, -2)) * D.unsqueeze(0)) @ V
        e = torch.zeros(batch, chunk_size, 1)
        for _i in range(chunk_size):
            e[:, _i, :] = self.gamma ** (_i + 1)
        cross_chunk = (Q @ r_i_1) * e
        return inner_chunk + cross_chunk, r_i

    def _get_D(self, sequence_length):
        n = torch.arange(sequence_length).unsqueeze(1)
        m = torch.arange(sequence_length).unsqueeze(0)
        # Broadcast self.gamma ** (n - m) with appropriate masking to set values where n < m to 0
        D = (self.gamma ** (n - m)) * (n >= m).float()
        D[D != D] = 0
        return D


class MultiScaleRetention(nn.Module):
    def __init__(self, hidden_size, heads, double_v_dim=False):
        super(MultiScaleRetention, self).__init__()
        self.hidden_size = hidden_size
        self.v_dim = hidden_size * 2 if double_v_dim else hidden_size
        self.heads = heads
        assert hidden_size % heads == 0, "hidden_size must be divisible by heads"
        self.head_size = hidden_size // heads
        self.head_v_dim = hidden_size * 2 if double_v_dim else hidden_size
        self.gammas = (1 - torch.exp(torch.linspace(math.log(1/32), math.log(1/512), heads))).detach().cpu().tolist()
        self.swish = lambda x: x * torch.sigmoid(x)
        self.W_G = nn.Parameter(torch.randn(hidden_size, self.v_dim) / hidden_size)
        self.W_O = nn.Parameter(torch.randn(self.v_dim, hidden_size) / hidden_size)
        self.group_norm = nn.GroupNorm(heads, self.v_dim)
        self.retentions = nn.ModuleList([SimpleRetention(self.hidden_size, gamma, self.head_size, double_v_dim) for gamma in self.gammas])

    def _join(self, X, Y):
        Y = torch.cat(Y, dim=2)
        Y_shape = Y.shape
        Y = self.group_norm(Y.reshape(-1, self.v_dim)).reshape(Y_shape)
        return (self.swish(X @ self.W_G) * Y) @ self.W_O

    def forward(self, X):
        Y = []
        for i in range(self.heads):
            Y.append(self.retentions[i](X))
        return self._join(X, Y)

    def forward_recurrent(self, x_n, s_n_1s, n):
        Y, s_ns = [], []
        for i in range(self.heads):
            y, s_n = self.retentions[i].forward_recurrent(x_n[:, :, :], s_n_1s[i], n)
            Y.append(y)
            s_ns.append(s_n)
        return self._join(x_n, Y), s_ns

    def forward_chunkwise(self, x_i, r_i_1s, i):
        Y, r_is = [], []
        for j in range(self.heads):
            y, r_i = self.retentions[j].forward_chunkwise(x_i[:, :, :], r_i_1s[j], i)
            Y.append(y)
            r_is.append(r_i)
        return self._join(x_i, Y), r_is


class RetNet(nn.Module):
    def __init__(self, layers, hidden_dim, ffn_size, heads, double_v_dim=False):
        super(RetNet, self).__init__()
        self.layers = layers
        self.heads = heads
        self.hidden_dim = hidden_dim
        self.v_dim = hidden_dim * 2 if double_v_dim else hidden_dim
        self.retentions = nn.ModuleList([MultiScaleRetention(hidden_dim, heads, double_v_dim) for _ in range(layers)])
        self.ffns = nn.ModuleList([
            nn.Sequential(nn.Linear(hidden_dim, ffn_size), nn.GELU(), nn.Linear(ffn_size, hidden_dim)) for _ in range(layers)
        ])
        self.layer_norms_1 = nn.ModuleList([nn.LayerNorm(hidden_dim) for _ in range(layers)])
        self.layer_norms_2 = nn.ModuleList([nn.LayerNorm(hidden_dim) for _ in range(layers)])

    def forward(self, X):
        for i in range(self.layers):
            Y = self.retentions[i](self.layer_norms_1[i](X)) + X
            X = self.ffns[i](self.layer_norms_2[i](Y)) + Y
        return X

    def forward_recurrent(self, x_n, s_n_1s, n):
        s_ns = []
        for i in range(self.layers):
            o_n, s_n = self.retentions[i].forward_recurrent(self.layer_norms_1[i](x_n), s_n_1s[i], n)
            y_n = o_n + x_n
            s_ns.append(s_n)
            x_n = self.ffns[i](self.layer_norms_2[i](y_n)) + y_n
        return x_n, s_ns

    def forward_chunkwise(self, x_i, r_i_1s, i):
        r_is = []
        for j in range(self.layers):
            o_i, r_i = self.retentions[j].forward_chunkwise(self.layer_norms_1[j](x_i), r_i_1s[j], i)
            y_i = o_i + x_i
            r_is.append(r_i)
            x_i = self.ffns[j](self.layer_norms_2[j](y_i)) + y_i
        return x_i, r_is


def program():
    torch.manual_seed(0)
    layers, hidden, heads = 2, 12, 3
    model = RetNet(layers, hidden, 20, heads, double_v_dim=True)
    yield "initial", model
    X = torch.rand(2, 6, hidden)
    Y = model(X)
    ((Y - X.flip(1)) ** 2).mean().backward()
    yield "parallel", Y
    yield "gradients", model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = ((model(X) - X.flip(1)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    yield "losses", losses
    with torch.no_grad():
        Y = model(X)
        s_n_1s = [[torch.zeros(hidden // heads, hidden // heads * 2).unsqueeze(0).repeat(2, 1, 1) for _ in range(heads)] for _ in range(layers)]
        Y_recurrent = []
        for i in range(6):
            Y_n, s_n_1s = model.forward_recurrent(X[:, i:i+1, :], s_n_1s, i)
            Y_recurrent.append(Y_n)
        Y_recurrent = torch.concat(Y_recurrent, dim=1)
        r_n_1s = [[torch.zeros(hidden // heads, hidden // heads * 2).unsqueeze(0).repeat(2, 1, 1) for _ in range(heads)] for _ in range(layers)]
        Y_chunkwise = []
        for i in range(3):
            Y_i, r_n_1s = model.forward_chunkwise(X[:, i*2:i*2+2, :], r_n_1s, i)
            Y_chunkwise.append(Y_i)
        Y_chunkwise = torch.concat(Y_chunkwise, dim=1)
    yield "recurrent", Y_recurrent
    yield "chunkwise", Y_chunkwise
    yield "agree", [torch.allclose(Y, Y_recurrent, atol=1e-4), torch.allclose(Y, Y_chunkwise, atol=1e-4)]
