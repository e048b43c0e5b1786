"""QRNN with fo-pooling, SRU, ON-LSTM's cumax, a LayerNorm LSTM of TorchScript classes, weight drop, locked dropout and adaptive softmax of awd-lstm-lm."""
import math
import numbers
import warnings
from collections import namedtuple
from typing import List, Tuple

import torch
import torch.jit as jit
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

LSTMState = namedtuple("LSTMState", ["hx", "cx"])


class LayerNorm(jit.ScriptModule):
    def __init__(self, normalized_shape):
        super().__init__()
        if isinstance(normalized_shape, numbers.Integral):
            normalized_shape = (normalized_shape,)
        normalized_shape = torch.Size(normalized_shape)
        assert len(normalized_shape) == 1
        self.weight = Parameter(torch.ones(normalized_shape))
        self.bias = Parameter(torch.zeros(normalized_shape))
        self.normalized_shape = normalized_shape

    @jit.script_method
    def compute_layernorm_stats(self, input):
        mu = input.mean(-1, keepdim=True)
        sigma = input.std(-1, keepdim=True, unbiased=False)
        return mu, sigma

    @jit.script_method
    def forward(self, input):
        mu, sigma = self.compute_layernorm_stats(input)
        return (input - mu) / sigma * self.weight + self.bias


class LayerNormLSTMCell(jit.ScriptModule):
    def __init__(self, input_size, hidden_size, decompose_layernorm=False):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.weight_ih = Parameter(torch.randn(4 * hidden_size, input_size))
        self.weight_hh = Parameter(torch.randn(4 * hidden_size, hidden_size))
        # The layernorms provide learnable biases
        ln = LayerNorm if decompose_layernorm else nn.LayerNorm
        self.layernorm_i = ln(4 * hidden_size)
        self.layernorm_h = ln(4 * hidden_size)
        self.layernorm_c = ln(hidden_size)

    @jit.script_method
    def forward(self, input: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        hx, cx = state
        igates = self.layernorm_i(torch.mm(input, self.weight_ih.t()))
        hgates = self.layernorm_h(torch.mm(hx, self.weight_hh.t()))
        gates = igates + hgates
        ingate, forgetgate, cellgate, outgate = gates.chunk(4, 1)
        ingate = torch.sigmoid(ingate)
        forgetgate = torch.sigmoid(forgetgate)
        cellgate = torch.tanh(cellgate)
        outgate = torch.sigmoid(outgate)
        cy = self.layernorm_c((forgetgate * cx) + (ingate * cellgate))
        hy = outgate * torch.tanh(cy)
        return hy, (hy, cy)


class LSTMLayer(jit.ScriptModule):
    def __init__(self, cell, *cell_args):
        super().__init__()
        self.cell = cell(*cell_args)

    @jit.script_method
    def forward(self, input: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        inputs = input.unbind(0)
        outputs = torch.jit.annotate(List[Tensor], [])
        for i in range(len(inputs)):
            out, state = self.cell(inputs[i], state)
            outputs += [out]
        return torch.stack(outputs), state


class ForgetMult(torch.nn.Module):
    """h_t = f_t x_t + (1 - f_t) h_(t-1), the CPU path of Salesforce's QRNN."""

    def forward(self, f, x, hidden_init=None):
        result = []
        forgets = f.split(1, dim=0)
        prev_h = hidden_init
        for i, h in enumerate((f * x).split(1, dim=0)):
            if prev_h is not None:
                h = h + (1 - forgets[i]) * prev_h
            # h is (1, batch, hidden) when it needs to be (batch_hidden)
            h = h.view(h.size()[1:])
            result.append(h)
            prev_h = h
        return torch.stack(result)


class QRNNLayer(nn.Module):
    def __init__(self, input_size, hidden_size=None, save_prev_x=False, zoneout=0, window=2, output_gate=True):
        super(QRNNLayer, self).__init__()
        assert window in [1, 2], "This QRNN implementation currently only handles convolutional window of size 1 or size 2"
        self.window = window
        self.input_size = input_size
        self.hidden_size = hidden_size if hidden_size else input_size
        self.zoneout = zoneout
        self.save_prev_x = save_prev_x
        self.prevX = None
        self.output_gate = output_gate
        self.linear = nn.Linear(self.window * self.input_size, 3 * self.hidden_size if self.output_gate else 2 * self.hidden_size)

    def reset(self):
        # If you are saving the previous value of x, you should call this when starting with a new state
        self.prevX = None

    def forward(self, X, hidden=None):
        seq_len, batch_size, _ = X.size()
        source = None
        if self.window == 1:
            source = X
        elif self.window == 2:
            # Construct the x_{t-1} tensor with optional x_{-1}, otherwise a zeroed out value for x_{-1}
            Xm1 = []
            Xm1.append(self.prevX if self.prevX is not None else X[:1, :, :] * 0)
            if len(X) > 1:
                Xm1.append(X[:-1, :, :])
            Xm1 = torch.cat(Xm1, 0)
            source = torch.cat([X, Xm1], 2)
        Y = self.linear(source)
        if self.output_gate:
            Y = Y.view(seq_len, batch_size, 3 * self.hidden_size)
            Z, F_, O = Y.chunk(3, dim=2)
        else:
            Y = Y.view(seq_len, batch_size, 2 * self.hidden_size)
            Z, F_ = Y.chunk(2, dim=2)
        Z = torch.tanh(Z)
        F_ = torch.sigmoid(F_)
        if self.zoneout:
            if self.training:
                mask = F_.new_empty(F_.size(), requires_grad=False).bernoulli_(1 - self.zoneout)
                F_ = F_ * mask
            else:
                F_ *= 1 - self.zoneout
        # Ensure the memory is laid out as expected for the CUDA kernel
        Z = Z.contiguous()
        F_ = F_.contiguous()
        C = ForgetMult()(F_, Z, hidden)
        H = torch.sigmoid(O) * C if self.output_gate else C
        # In an optimal world we may want to backprop to x_{t-1} but ...
        if self.window > 1 and self.save_prev_x:
            self.prevX = X[-1:, :, :].detach()
        return H, C[-1:, :, :]


class SRUCell(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.Tensor(n, n * 3))
        self.weight_c = nn.Parameter(torch.Tensor(n * 2))
        self.bias = nn.Parameter(torch.Tensor(n * 2))
        val_range = (3.0 / n) ** 0.5
        self.weight.data.uniform_(-val_range, val_range)
        self.weight_c.data.uniform_(-val_range, val_range)
        self.bias.data.zero_()

    def forward(self, input, c0):
        length, batch, n = input.shape
        u = input.reshape(-1, n).mm(self.weight).view(length, batch, n, 3)
        forget_wc, reset_wc = self.weight_c.view(2, n)
        forget_bias, reset_bias = self.bias.view(2, n)
        h = u.new_empty(length, batch, n)
        c_prev = c0
        x0, x1, x2 = u.unbind(-1)
        for t in range(length):
            forget_t = (x1[t] + c_prev * forget_wc + forget_bias).sigmoid()
            reset_t = (x2[t] + c_prev * reset_wc + reset_bias).sigmoid()
            c_prev = x0[t] + (c_prev - x0[t]) * forget_t
            h[t] = reset_t * c_prev.tanh() + (1 - reset_t) * input[t]
        return h, c_prev


def cumsoftmax(x, dim=-1):
    return torch.cumsum(F.softmax(x, dim=dim), dim=dim)


class LockedDropout(nn.Module):
    def forward(self, x, dropout=0.5):
        if not self.training or not dropout:
            return x
        m = x.data.new(1, x.size(1), x.size(2)).bernoulli_(1 - dropout)
        mask = m.detach().div_(1 - dropout)
        mask = mask.expand_as(x)
        return mask * x


class WeightDrop(torch.nn.Module):
    def __init__(self, module, weights, dropout=0.0):
        super(WeightDrop, self).__init__()
        self.module = module
        self.weights = weights
        self.dropout = dropout
        for name_w in self.weights:
            w = getattr(self.module, name_w)
            del self.module._parameters[name_w]
            self.module.register_parameter(name_w + '_raw', Parameter(w.data))

    def _setweights(self):
        for name_w in self.weights:
            raw_w = getattr(self.module, name_w + '_raw')
            w = raw_w * (torch.rand_like(raw_w) >= self.dropout) / (1 - self.dropout)
            setattr(self.module, name_w, w)

    def forward(self, *args):
        self._setweights()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.module.forward(*args)


def embedded_dropout(embed, words, dropout=0.1, scale=None):
    if dropout:
        mask = embed.weight.data.new().resize_((embed.weight.size(0), 1)).bernoulli_(1 - dropout).expand_as(embed.weight) / (1 - dropout)
        masked_embed_weight = mask * embed.weight
    else:
        masked_embed_weight = embed.weight
    if scale:
        masked_embed_weight = scale.expand_as(masked_embed_weight) * masked_embed_weight
    padding_idx = embed.padding_idx
    if padding_idx is None:
        padding_idx = -1
    return torch.nn.functional.embedding(words, masked_embed_weight, padding_idx, embed.max_norm, embed.norm_type, embed.scale_grad_by_freq, embed.sparse)


class AWDModel(nn.Module):
    def __init__(self, ntoken=40, ninp=8, nhid=8):
        super().__init__()
        self.lockdrop = LockedDropout()
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnns = torch.nn.ModuleList([WeightDrop(nn.LSTMCell(ninp, nhid), ['weight_hh'], dropout=0.5)])
        self.qrnn = QRNNLayer(nhid, nhid, save_prev_x=True, zoneout=0.1)
        self.criterion = nn.AdaptiveLogSoftmaxWithLoss(nhid, ntoken, [10, 20], div_value=2.0)

    def forward(self, input, targets, hidden):
        emb = embedded_dropout(self.encoder, input, dropout=0.1 if self.training else 0)
        emb = self.lockdrop(emb, 0.3)
        h, c = hidden
        outs = []
        rnn = self.rnns[0]
        for x in emb:
            h, c = rnn(x, (h, c))
            outs.append(h)
        raw_output = torch.stack(outs)
        output, qh = self.qrnn(raw_output)
        loss = self.criterion(output.view(-1, output.size(2)), targets.view(-1)).loss
        # Activation regularization, temporal activation regularization (slowness)
        loss = loss + 2 * output.pow(2).mean() + (raw_output[1:] - raw_output[:-1]).pow(2).mean()
        return loss, output, (h.detach(), c.detach())


def program():
    torch.manual_seed(0)
    layer = LSTMLayer(LayerNormLSTMCell, 3, 4, True)
    x = torch.randn(5, 2, 3)
    state = LSTMState(torch.randn(2, 4), torch.randn(2, 4))
    out, out_state = layer(x, state)
    out.sum().backward()
    yield "initial layer norm", [p.detach() for p in layer.parameters()]
    yield "layer norm lstm", [out, out_state, {n: p.grad for n, p in layer.named_parameters()}]
    model = AWDModel()
    yield "initial awd", model
    words = torch.randint(0, 40, (7, 3))
    optimizer = torch.optim.ASGD(model.parameters(), lr=1.0, t0=0, lambd=0., weight_decay=1.2e-6)
    hidden = (torch.zeros(3, 8), torch.zeros(3, 8))
    losses = []
    for step in range(3):
        model.train()
        optimizer.zero_grad()
        loss, output, hidden = model(words[:-1], words[1:], hidden)
        loss.backward()
        if step == 0:
            yield "awd gradients", {n: p.grad for n, p in model.named_parameters()}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        losses.append(loss.item())
    # validation with averaged parameters, as awd-lstm-lm's main.py swaps them
    tmp = {}
    for prm in model.parameters():
        tmp[prm] = prm.data.clone()
        prm.data = optimizer.state[prm]['ax'].clone()
    model.eval()
    model.qrnn.reset()
    losses.append(model(words[:-1], words[1:], hidden)[0].item())
    for prm in model.parameters():
        prm.data = tmp[prm].clone()
    yield "awd losses", losses
    sru = SRUCell(4)
    inputs = torch.randn(5, 2, 4, requires_grad=True)
    h, c = sru(inputs, torch.zeros(2, 4))
    (h.sum() + c.square().sum()).backward()
    yield "sru", [h, c, inputs.grad]
    yield "sru's gradients", sru
    yield "cumax", 1 - cumsoftmax(torch.randn(3, 6))
    yield "entropy floor", math.log(40)
