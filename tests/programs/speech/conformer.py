"""Conformer (lucidrains' and ESPnet's relative attention), subsampling by Conv2d, an RNN-transducer's joint network; trained with CTC and a transducer loss under OneCycleLR."""
import math
from typing import Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


class Swish(nn.Module):
    def forward(self, x):
        return x * x.sigmoid()


class Scale(nn.Module):
    def __init__(self, scale, fn):
        super().__init__()
        self.fn = fn
        self.scale = scale

    def forward(self, x, **kwargs):
        return self.fn(x, **kwargs) * self.scale


class PreNorm(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.fn = fn
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, **kwargs):
        x = self.norm(x)
        return self.fn(x, **kwargs)


class Transpose(nn.Module):
    def __init__(self, shape: tuple):
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(*self.shape)


class RelPositionalEncoding(nn.Module):
    def __init__(self, d_model: int, max_len: int = 30):
        super().__init__()
        self.d_model = d_model
        self.pe = None
        self.extend_pe(torch.tensor(0.0).expand(1, max_len))

    def extend_pe(self, x: Tensor):
        if self.pe is not None:
            if self.pe.size(1) >= x.size(1) * 2 - 1:
                if self.pe.dtype != x.dtype or self.pe.device != x.device:
                    self.pe = self.pe.to(dtype=x.dtype, device=x.device)
                return
        pe_positive = torch.zeros(x.size(1), self.d_model)
        pe_negative = torch.zeros(x.size(1), self.d_model)
        position = torch.arange(0, x.size(1), dtype=torch.float32).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, self.d_model, 2, dtype=torch.float32) * -(math.log(10000.0) / self.d_model))
        pe_positive[:, 0::2] = torch.sin(position * div_term)
        pe_positive[:, 1::2] = torch.cos(position * div_term)
        pe_negative[:, 0::2] = torch.sin(-1 * position * div_term)
        pe_negative[:, 1::2] = torch.cos(-1 * position * div_term)
        # Reserve the order of positive indices and concat both positive and negative indices
        pe_positive = torch.flip(pe_positive, [0]).unsqueeze(0)
        pe_negative = pe_negative[1:].unsqueeze(0)
        pe = torch.cat([pe_positive, pe_negative], dim=1)
        self.pe = pe.to(device=x.device, dtype=x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        self.extend_pe(x)
        return self.pe[:, self.pe.size(1) // 2 - x.size(1) + 1 : self.pe.size(1) // 2 + x.size(1)]


class RelPositionMultiHeadedAttention(nn.Module):
    def __init__(self, dim: int, n_head: int):
        super().__init__()
        self.h, self.d_k = n_head, dim // n_head
        self.linear_qkv = nn.Linear(dim, 3 * dim)
        self.linear_out = nn.Linear(dim, dim)
        self.linear_pos = nn.Linear(dim, dim, bias=False)
        # these two learnable bias are used in matrix c and matrix d
        self.pos_bias_u = nn.Parameter(torch.Tensor(self.h, self.d_k))
        self.pos_bias_v = nn.Parameter(torch.Tensor(self.h, self.d_k))
        torch.nn.init.xavier_uniform_(self.pos_bias_u)
        torch.nn.init.xavier_uniform_(self.pos_bias_v)
        self.pos = RelPositionalEncoding(dim)

    def rel_shift(self, x):
        zero_pad = torch.zeros((*x.size()[:3], 1), device=x.device, dtype=x.dtype)
        x_padded = torch.cat([zero_pad, x], dim=-1)
        x_padded = x_padded.view(*x.size()[:2], x.size(3) + 1, x.size(2))
        x = x_padded[:, :, 1:].view_as(x)[:, :, :, : x.size(-1) // 2 + 1]  # only keep the positions from 0 to time2
        return x

    def forward(self, x, mask: Optional[Tensor] = None):
        n_batch, t, _ = x.shape
        pos_emb = self.pos(x)
        q, k, v = self.linear_qkv(x).view(n_batch, t, 3, self.h, self.d_k).unbind(2)
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        p = self.linear_pos(pos_emb).view(1, -1, self.h, self.d_k).transpose(1, 2)
        q_with_bias_u = (q + self.pos_bias_u).transpose(1, 2)
        q_with_bias_v = (q + self.pos_bias_v).transpose(1, 2)
        matrix_ac = torch.matmul(q_with_bias_u, k.transpose(-2, -1))
        matrix_bd = self.rel_shift(torch.matmul(q_with_bias_v, p.transpose(-2, -1)))
        scores = (matrix_ac + matrix_bd) / math.sqrt(self.d_k)
        if mask is not None:
            mask = mask.unsqueeze(1).eq(0)  # (batch, 1, *, time2)
            min_value = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(mask, min_value)
            attn = torch.softmax(scores, dim=-1).masked_fill(mask, 0.0)
        else:
            attn = torch.softmax(scores, dim=-1)
        x = torch.matmul(attn, v).transpose(1, 2).contiguous().view(n_batch, -1, self.h * self.d_k)
        return self.linear_out(x)


class ConformerConvModule(nn.Module):
    def __init__(self, dim, expansion_factor=2, kernel_size=5, dropout=0.1):
        super().__init__()
        inner_dim = dim * expansion_factor
        self.net = nn.Sequential(
            nn.LayerNorm(dim),
            Transpose((1, 2)),
            nn.Conv1d(dim, inner_dim * 2, 1),
            nn.GLU(dim=1),
            nn.Conv1d(inner_dim, inner_dim, kernel_size, padding='same', groups=inner_dim),
            nn.BatchNorm1d(inner_dim),
            Swish(),
            nn.Conv1d(inner_dim, dim, 1),
            Transpose((1, 2)),
            nn.Dropout(dropout)
        )

    def forward(self, x):
        return self.net(x)


class ConformerBlock(nn.Module):
    def __init__(self, dim, heads, dropout=0.1):
        super().__init__()

        def ff():
            return nn.Sequential(nn.Linear(dim, dim * 4), Swish(), nn.Dropout(dropout), nn.Linear(dim * 4, dim), nn.Dropout(dropout))
        self.ff1 = Scale(0.5, PreNorm(dim, ff()))
        self.attn = PreNorm(dim, RelPositionMultiHeadedAttention(dim, heads))
        self.conv = ConformerConvModule(dim, dropout=dropout)
        self.ff2 = Scale(0.5, PreNorm(dim, ff()))
        self.post_norm = nn.LayerNorm(dim)

    def forward(self, x, mask=None):
        x = self.ff1(x) + x
        x = self.attn(x, mask=mask) + x
        x = self.conv(x) + x
        x = self.ff2(x) + x
        return self.post_norm(x)


class Conv2dSubsampling(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, n_feats: int, dim: int):
        super().__init__()
        self.sequential = nn.Sequential(nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=2), nn.ReLU(),
                                        nn.Conv2d(out_channels, out_channels, kernel_size=3, stride=2), nn.ReLU())
        self.out = nn.Linear(out_channels * (((n_feats - 1) // 2 - 1) // 2), dim)

    def forward(self, inputs: Tensor, input_lengths: Tensor) -> Tuple[Tensor, Tensor]:
        outputs = self.sequential(inputs.unsqueeze(1))
        batch_size, channels, subsampled_lengths, sumsampled_dim = outputs.size()
        outputs = outputs.permute(0, 2, 1, 3)
        outputs = outputs.contiguous().view(batch_size, subsampled_lengths, channels * sumsampled_dim)
        output_lengths = input_lengths >> 2
        output_lengths -= 1
        return self.out(outputs), output_lengths


class Model(nn.Module):
    def __init__(self, dim=12, vocab=9):
        super().__init__()
        self.subsample = Conv2dSubsampling(1, 4, 16, dim)
        self.layers = nn.ModuleList([ConformerBlock(dim, 3) for _ in range(2)])
        self.fc = nn.Linear(dim, vocab, bias=False)
        self.embed = nn.Embedding(vocab, dim)
        self.predictor = nn.GRU(dim, dim, batch_first=True)
        self.joint = nn.Sequential(nn.Linear(dim * 2, dim), nn.Tanh(), nn.Linear(dim, vocab))

    def forward(self, x, lengths, targets):
        x, lengths = self.subsample(x, lengths)
        mask = torch.arange(x.size(1))[None, :] < lengths[:, None]
        for layer in self.layers:
            x = layer(x, mask=mask.unsqueeze(1))
        enc = x.unsqueeze(2).expand(-1, -1, targets.size(1), -1)
        dec = self.predictor(self.embed(targets))[0].unsqueeze(1).expand(-1, x.size(1), -1, -1)
        return F.log_softmax(self.fc(x), dim=-1), lengths, self.joint(torch.cat((enc, dec), dim=-1)).log_softmax(-1)


def transducer_loss(log_probs, targets, blank=0):
    """The forward recursion of Graves (2012) in plain operations."""
    B, T, U, _ = log_probs.shape
    blanks = log_probs[..., blank]
    emits = log_probs[:, :, :-1].gather(3, targets[:, None, :, None].expand(-1, T, -1, 1)).squeeze(3)
    row = torch.cat([torch.zeros(B, 1), emits[:, 0].cumsum(1)], 1)
    for t in range(1, T):
        stay = row + blanks[:, t - 1]
        new = [stay[:, 0]]
        for u in range(1, U):
            new.append(torch.logaddexp(stay[:, u], new[-1] + emits[:, t, u - 1]))
        row = torch.stack(new, 1)
    return -(row[:, -1] + blanks[:, -1, -1]).mean()


def program():
    torch.manual_seed(0)
    model = Model()
    yield "initial", model
    x, lengths = torch.randn(2, 40, 16), torch.tensor([40, 33])
    targets, target_lengths = torch.randint(1, 9, (2, 4)), torch.tensor([4, 3])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-4, total_steps=20, anneal_strategy='linear')
    losses = []
    for step in range(2):
        log_probs, out_lengths, joint = model(x, lengths, targets)
        ctc = F.ctc_loss(log_probs.transpose(0, 1), targets, out_lengths, target_lengths, blank=0, reduction="mean")
        rnnt = transducer_loss(joint, targets[:, 1:])
        loss = 0.3 * ctc + rnnt
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            yield "outputs", [log_probs, out_lengths, joint]
            yield "gradients", model
        optimizer.step()
        scheduler.step()
        losses.append([ctc.item(), rnnt.item(), optimizer.param_groups[0]["lr"]])
    yield "losses", losses
    model.eval()
    yield "decoded", torch.unique_consecutive(model(x, lengths, targets)[0][0].argmax(-1))
