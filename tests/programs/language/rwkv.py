"""RWKV-4: time mixing and channel mixing, the WKV recurrence in its stable form, training over a sequence and running as an RNN."""
import math
import types

import torch
import torch.nn as nn
from torch.nn import functional as F


def RUN_CUDA(B, T, C, w, u, k, v):
    """What the CUDA kernel of RWKV-4 does, in PyTorch: the recurrence with a running maximum of exponents."""
    w = -torch.exp(w)
    aa = torch.zeros(B, C, dtype=k.dtype, device=k.device)
    bb = torch.zeros_like(aa)
    pp = torch.full_like(aa, -1e38)
    out = torch.empty(0)
    ys = []
    for t in range(T):
        kk, vv = k[:, t], v[:, t]
        ww = u + kk
        p = torch.maximum(pp, ww)
        e1 = torch.exp(pp - p)
        e2 = torch.exp(ww - p)
        ys.append((e1 * aa + e2 * vv) / (e1 * bb + e2))
        ww = w + pp
        p = torch.maximum(ww, kk)
        e1 = torch.exp(ww - p)
        e2 = torch.exp(kk - p)
        aa = e1 * aa + e2 * vv
        bb = e1 * bb + e2
        pp = p
    return torch.stack(ys, dim=1)


class RWKV_TimeMix(nn.Module):
    def __init__(self, config, layer_id):
        super().__init__()
        self.layer_id = layer_id
        n_embd, n_layer = config.n_embd, config.n_layer
        attn_sz = n_embd
        with torch.no_grad():  # fancy init
            ratio_0_to_1 = (layer_id / (n_layer - 1))  # 0 to 1
            ratio_1_to_almost0 = (1.0 - (layer_id / n_layer))  # 1 to ~0
            # fancy time_decay
            decay_speed = torch.ones(attn_sz)
            for h in range(attn_sz):
                decay_speed[h] = -5 + 8 * (h / (attn_sz - 1)) ** (0.7 + 1.3 * ratio_0_to_1)
            self.time_decay = nn.Parameter(decay_speed)
            # fancy time_first
            zigzag = (torch.tensor([(i + 1) % 3 - 1 for i in range(attn_sz)]) * 0.5)
            self.time_first = nn.Parameter(torch.ones(attn_sz) * math.log(0.3) + zigzag)
            # fancy time_mix
            x = torch.ones(1, 1, n_embd)
            for i in range(n_embd):
                x[0, 0, i] = i / n_embd
            self.time_mix_k = nn.Parameter(torch.pow(x, ratio_1_to_almost0))
            self.time_mix_v = nn.Parameter(torch.pow(x, ratio_1_to_almost0) + 0.3 * ratio_0_to_1)
            self.time_mix_r = nn.Parameter(torch.pow(x, 0.5 * ratio_1_to_almost0))
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.key = nn.Linear(n_embd, attn_sz, bias=False)
        self.value = nn.Linear(n_embd, attn_sz, bias=False)
        self.receptance = nn.Linear(n_embd, attn_sz, bias=False)
        self.output = nn.Linear(attn_sz, n_embd, bias=False)

    @torch.jit.ignore
    def wkv(self, B, T, C, k, v):
        return RUN_CUDA(B, T, C, self.time_decay, self.time_first, k, v)

    def jit_func(self, x):
        # Mix x with the previous timestep to produce xk, xv, xr
        xx = self.time_shift(x)
        xk = x * self.time_mix_k + xx * (1 - self.time_mix_k)
        xv = x * self.time_mix_v + xx * (1 - self.time_mix_v)
        xr = x * self.time_mix_r + xx * (1 - self.time_mix_r)
        k = self.key(xk)
        v = self.value(xv)
        r = self.receptance(xr)
        sr = torch.sigmoid(r)
        return sr, k, v

    def forward(self, x):
        B, T, C = x.size()
        sr, k, v = self.jit_func(x)
        rwkv = sr * self.wkv(B, T, C, k, v)
        return self.output(rwkv)


class RWKV_ChannelMix(nn.Module):
    def __init__(self, config, layer_id):
        super().__init__()
        self.layer_id = layer_id
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        with torch.no_grad():  # fancy init of time_mix
            ratio_1_to_almost0 = (1.0 - (layer_id / config.n_layer))
            x = torch.ones(1, 1, config.n_embd)
            for i in range(config.n_embd):
                x[0, 0, i] = i / config.n_embd
            self.time_mix_k = nn.Parameter(torch.pow(x, ratio_1_to_almost0))
            self.time_mix_r = nn.Parameter(torch.pow(x, ratio_1_to_almost0))
        hidden_sz = 4 * config.n_embd
        self.key = nn.Linear(config.n_embd, hidden_sz, bias=False)
        self.receptance = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.value = nn.Linear(hidden_sz, config.n_embd, bias=False)

    def forward(self, x):
        xx = self.time_shift(x)
        xk = x * self.time_mix_k + xx * (1 - self.time_mix_k)
        xr = x * self.time_mix_r + xx * (1 - self.time_mix_r)
        k = self.key(xk)
        k = torch.square(torch.relu(k))
        kv = self.value(k)
        return torch.sigmoid(self.receptance(xr)) * kv


class L2Wrap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, y):
        ctx.save_for_backward(y)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        y = ctx.saved_tensors[0]
        # to encourage the logits to be close to 0
        factor = 1e-4 / (y.shape[0] * y.shape[1])
        maxx, ids = torch.max(y, -1, keepdim=True)
        gy = torch.zeros_like(y)
        gy.scatter_(-1, ids, maxx * factor)
        return (grad_output, gy)


class Block(nn.Module):
    def __init__(self, config, layer_id):
        super().__init__()
        self.config = config
        self.layer_id = layer_id
        self.ln1 = nn.LayerNorm(config.n_embd)
        self.ln2 = nn.LayerNorm(config.n_embd)
        if self.layer_id == 0:
            self.ln0 = nn.LayerNorm(config.n_embd)
        self.att = RWKV_TimeMix(config, layer_id)
        self.ffn = RWKV_ChannelMix(config, layer_id)

    def forward(self, x):
        if self.layer_id == 0:
            x = self.ln0(x)
        x = x + self.att(self.ln1(x))
        x = x + self.ffn(self.ln2(x))
        return x


class RWKV(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.emb = nn.Embedding(config.vocab_size, config.n_embd)
        self.blocks = nn.Sequential(*[Block(config, i) for i in range(config.n_layer)])
        self.ln_out = nn.LayerNorm(config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        for mm in self.modules():
            if "RecursiveScriptModule" in str(type(mm)):
                continue
            if isinstance(mm, nn.Linear):
                shape = mm.weight.data.shape
                gain = 1.0
                if shape[0] > shape[1]:
                    gain = math.sqrt(shape[0] / shape[1])
                if shape[0] == config.vocab_size and shape[1] == config.n_embd:
                    gain = 0.5
                nn.init.orthogonal_(mm.weight, gain=gain)
            elif isinstance(mm, nn.Embedding):
                nn.init.uniform_(mm.weight, a=-1e-4, b=1e-4)

    def forward(self, idx, targets=None):
        x = self.head(self.ln_out(self.blocks(self.emb(idx))))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(x.view(-1, x.size(-1)), targets.to(x.device).view(-1))
            return L2Wrap.apply(loss, x), x
        return x


class RWKV_RNN(nn.Module):
    """The same weights, one token at a time (RWKV's model_run.py)."""

    def __init__(self, model):
        super().__init__()
        with torch.no_grad():
            w = {k: v.clone() for k, v in model.state_dict().items()}
            self.w = types.SimpleNamespace()
            for x in w.keys():
                w[x] = w[x].float()
                if ".time_" in x:
                    w[x] = w[x].squeeze()
                if ".time_decay" in x:
                    w[x] = -torch.exp(w[x])
                xx = x.split(".")
                here = self.w
                for i in range(len(xx)):
                    if xx[i].isdigit():
                        ii = int(xx[i])
                        if ii not in here:
                            here[ii] = types.SimpleNamespace()
                        here = here[ii]
                    else:
                        if i == len(xx) - 1:
                            setattr(here, xx[i], w[x])
                        elif not hasattr(here, xx[i]):
                            if xx[i + 1].isdigit():
                                setattr(here, xx[i], {})
                            else:
                                setattr(here, xx[i], types.SimpleNamespace())
                        here = getattr(here, xx[i])
        self.n_embd, self.n_layer = model.config.n_embd, model.config.n_layer
        self.eval()

    def LN(self, x, w):
        return F.layer_norm(x, (self.n_embd,), weight=w.weight, bias=w.bias)

    def FF(self, x, state, i, w):
        xk = x * w.time_mix_k + state[5 * i + 0] * (1 - w.time_mix_k)
        xr = x * w.time_mix_r + state[5 * i + 0] * (1 - w.time_mix_r)
        state[5 * i + 0] = x
        r = torch.sigmoid(w.receptance.weight @ xr)
        k = torch.square(torch.relu(w.key.weight @ xk))
        return r * (w.value.weight @ k)

    def SA(self, x, state, i, w):
        xk = x * w.time_mix_k + state[5 * i + 1] * (1 - w.time_mix_k)
        xv = x * w.time_mix_v + state[5 * i + 1] * (1 - w.time_mix_v)
        xr = x * w.time_mix_r + state[5 * i + 1] * (1 - w.time_mix_r)
        state[5 * i + 1] = x
        r = torch.sigmoid(w.receptance.weight @ xr)
        k = w.key.weight @ xk
        v = w.value.weight @ xv
        aa, bb, pp = state[5 * i + 2], state[5 * i + 3], state[5 * i + 4]
        ww = w.time_first + k
        qq = torch.maximum(pp, ww)
        e1, e2 = torch.exp(pp - qq), torch.exp(ww - qq)
        wkv = (e1 * aa + e2 * v) / (e1 * bb + e2)
        ww = pp + w.time_decay
        qq = torch.maximum(ww, k)
        e1, e2 = torch.exp(ww - qq), torch.exp(k - qq)
        state[5 * i + 2] = e1 * aa + e2 * v
        state[5 * i + 3] = e1 * bb + e2
        state[5 * i + 4] = qq
        return w.output.weight @ (r * wkv)

    def forward(self, token, state):
        with torch.no_grad():
            x = self.w.emb.weight[token]
            if state is None:
                state = torch.zeros(self.n_layer * 5, self.n_embd)
                for i in range(self.n_layer):
                    state[5 * i + 4] -= 1e30
            x = self.LN(x, self.w.blocks[0].ln0)
            for i in range(self.n_layer):
                x = x + self.SA(self.LN(x, self.w.blocks[i].ln1), state, i, self.w.blocks[i].att)
                x = x + self.FF(self.LN(x, self.w.blocks[i].ln2), state, i, self.w.blocks[i].ffn)
            x = self.w.head.weight @ self.LN(x, self.w.ln_out)
            return x.float(), state


def program():
    torch.manual_seed(0)
    model = RWKV(types.SimpleNamespace(vocab_size=50, n_embd=16, n_layer=2))
    yield "model", model
    # orthogonal_ calls LAPACK: the rest of the comparison should not depend on its rounding
    idx = torch.randint(0, 50, (2, 9))
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-4, betas=(0.9, 0.99), eps=1e-8)
    losses = []
    for step in range(3):
        loss, logits = model(idx[:, :-1], idx[:, 1:].contiguous())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if step == 0:
            yield "logits", logits
            yield "gradients", model
        optimizer.step()
        losses.append(loss.item())
    yield "losses", losses
    rnn = RWKV_RNN(model)
    state, outs = None, []
    for token in idx[0].tolist():
        out, state = rnn(token, state)
        outs.append(out)
    yield "as an RNN", torch.stack(outs)
    yield "state", state
    with torch.no_grad():
        yield "agree", torch.allclose(torch.stack(outs), model(idx[:1])[0], atol=1e-4)
