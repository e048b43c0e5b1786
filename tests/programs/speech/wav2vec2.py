"""Wav2Vec2 (HF/fairseq): feature encoder with group norm, weight-normed positional convolution (dim=2), gumbel product quantiser, span masks, contrastive loss with sampled negatives, diversity; SpecAugment."""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Fp32GroupNorm(nn.GroupNorm):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

    def forward(self, input):
        output = F.group_norm(
            input.float(),
            self.num_groups,
            self.weight.float() if self.weight is not None else None,
            self.bias.float() if self.bias is not None else None,
            self.eps,
        )
        return output.type_as(input)


class GradMultiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        res = x.new(x)
        return res

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


class ConvFeatureExtractionModel(nn.Module):
    def __init__(self, conv_layers, dropout=0.0):
        super().__init__()

        def block(n_in, n_out, k, stride, is_group_norm=False):
            def make_conv():
                conv = nn.Conv1d(n_in, n_out, k, stride=stride, bias=False)
                nn.init.kaiming_normal_(conv.weight)
                return conv

            if is_group_norm:
                return nn.Sequential(make_conv(), nn.Dropout(p=dropout), Fp32GroupNorm(n_out, n_out, affine=True), nn.GELU())
            else:
                return nn.Sequential(make_conv(), nn.Dropout(p=dropout), nn.GELU())

        in_d = 1
        self.conv_layers = nn.ModuleList()
        for i, cl in enumerate(conv_layers):
            assert len(cl) == 3, "invalid conv definition: " + str(cl)
            (dim, k, stride) = cl
            self.conv_layers.append(block(in_d, dim, k, stride, is_group_norm=i == 0))
            in_d = dim

    def forward(self, x):
        # BxT -> BxCxT
        x = x.unsqueeze(1)
        for conv in self.conv_layers:
            x = conv(x)
        return x


class SamePad(nn.Module):
    def __init__(self, kernel_size):
        super().__init__()
        self.remove = 1 if kernel_size % 2 == 0 else 0

    def forward(self, x):
        if self.remove > 0:
            x = x[:, :, : -self.remove]
        return x


def _compute_mask_indices(shape, mask_prob, mask_length, rng):
    batch_size, sequence_length = shape
    spec_aug_mask = np.zeros((batch_size, sequence_length), dtype=bool)
    for i in range(batch_size):
        num_masked_span = int(mask_prob * sequence_length / mask_length + rng.random())
        idx = rng.choice(np.arange(sequence_length - (mask_length - 1)), max(num_masked_span, 1), replace=False)
        idx = np.broadcast_to(idx[:, None], (len(idx), mask_length)).reshape(-1) + np.tile(np.arange(mask_length), len(idx))
        spec_aug_mask[i, idx] = True
    return torch.from_numpy(spec_aug_mask)


class GumbelVectorQuantizer(nn.Module):
    def __init__(self, dim, num_vars, temp, groups, vq_dim):
        super().__init__()
        self.groups = groups
        self.num_vars = num_vars
        assert vq_dim % groups == 0, f"dim {vq_dim} must be divisible by groups {groups} for concatenation"
        var_dim = vq_dim // groups
        self.vars = nn.Parameter(torch.FloatTensor(1, groups * num_vars, var_dim))
        nn.init.uniform_(self.vars)
        self.weight_proj = nn.Linear(dim, groups * num_vars)
        nn.init.normal_(self.weight_proj.weight, mean=0, std=1)
        nn.init.zeros_(self.weight_proj.bias)
        self.max_temp, self.min_temp, self.temp_decay = temp
        self.curr_temp = self.max_temp

    def set_num_updates(self, num_updates):
        self.curr_temp = max(self.max_temp * self.temp_decay ** num_updates, self.min_temp)

    def forward(self, x):
        bsz, tsz, fsz = x.shape
        x = x.reshape(-1, fsz)
        x = self.weight_proj(x)
        x = x.view(bsz * tsz * self.groups, -1)
        _, k = x.max(-1)
        hard_x = (x.new_zeros(*x.shape).scatter_(-1, k.view(-1, 1), 1.0).view(bsz * tsz, self.groups, -1))
        hard_probs = torch.mean(hard_x.float(), dim=0)
        code_perplexity = torch.exp(-torch.sum(hard_probs * torch.log(hard_probs + 1e-7), dim=-1)).sum()
        avg_probs = torch.softmax(x.view(bsz * tsz, self.groups, -1).float(), dim=-1).mean(dim=0)
        prob_perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-7), dim=-1)).sum()
        if self.training:
            x = F.gumbel_softmax(x.float(), tau=self.curr_temp, hard=True).type_as(x)
        else:
            x = hard_x
        x = x.view(bsz * tsz, -1)
        vars = self.vars
        x = x.unsqueeze(-1) * vars
        x = x.view(bsz * tsz, self.groups, self.num_vars, -1)
        x = x.sum(-2)
        x = x.view(bsz, tsz, -1)
        return x, code_perplexity, prob_perplexity


class Wav2Vec2Model(nn.Module):
    def __init__(self, embed=12, final_dim=8, conv_pos=4, conv_pos_groups=3):
        super().__init__()
        self.feature_extractor = ConvFeatureExtractionModel([(6, 10, 5), (8, 3, 2)])
        self.layer_norm = nn.LayerNorm(8)
        self.post_extract_proj = nn.Linear(8, embed)
        self.quantizer = GumbelVectorQuantizer(8, 5, (2, 0.5, 0.999995), 2, final_dim)
        self.project_q = nn.Linear(final_dim, final_dim)
        self.final_proj = nn.Linear(embed, final_dim)
        self.mask_emb = nn.Parameter(torch.FloatTensor(embed).uniform_())
        pos_conv = nn.Conv1d(embed, embed, kernel_size=conv_pos, padding=conv_pos // 2, groups=conv_pos_groups)
        std = math.sqrt((4 * (1.0 - 0.0)) / (conv_pos * embed))
        nn.init.normal_(pos_conv.weight, mean=0, std=std)
        nn.init.constant_(pos_conv.bias, 0)
        pos_conv = nn.utils.weight_norm(pos_conv, name="weight", dim=2)
        self.pos_conv = nn.Sequential(pos_conv, SamePad(conv_pos), nn.GELU())
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(embed, 3, 20, dropout=0.0, activation="gelu", batch_first=True, norm_first=True), 2, nn.LayerNorm(embed),
            enable_nested_tensor=False)
        self.n_negatives, self.logit_temp = 5, 0.1

    def sample_negatives(self, y, num):
        bsz, tsz, fsz = y.shape
        y = y.view(-1, fsz)  # BTC => (BxT)C
        with torch.no_grad():
            tszs = torch.arange(num).unsqueeze(-1).expand(-1, self.n_negatives).flatten()
            neg_idxs = torch.randint(low=0, high=tsz - 1, size=(bsz, self.n_negatives * num))
            neg_idxs[neg_idxs >= tszs] += 1
        for i in range(1, bsz):
            neg_idxs[i] += i * tsz
        negs = y[neg_idxs.view(-1)]
        negs = negs.view(bsz, num, self.n_negatives, fsz).permute(2, 0, 1, 3)  # to NxBxTxC
        return negs, neg_idxs

    def compute_preds(self, x, y, negatives):
        neg_is_pos = (y == negatives).all(-1)
        y = y.unsqueeze(0)
        targets = torch.cat([y, negatives], dim=0)
        logits = torch.cosine_similarity(x.float(), targets.float(), dim=-1).type_as(x)
        logits = logits / self.logit_temp
        if neg_is_pos.any():
            logits[1:][neg_is_pos] = float("-inf")
        return logits

    def forward(self, source, mask_indices):
        features = GradMultiply.apply(self.feature_extractor(source), 0.1)
        features_pen = features.float().pow(2).mean()
        features = features.transpose(1, 2)
        features = self.layer_norm(features)
        unmasked_features = features.clone()
        x = self.post_extract_proj(features)
        x[mask_indices] = self.mask_emb
        y = unmasked_features[mask_indices].view(unmasked_features.size(0), -1, unmasked_features.size(-1))
        x = x + self.pos_conv(x.transpose(1, 2)).transpose(1, 2)
        x = self.encoder(x)
        q, code_ppl, prob_ppl = self.quantizer(y)
        y = self.project_q(q)
        negs, _ = self.sample_negatives(y, y.size(1))
        x = x[mask_indices].view(x.size(0), -1, x.size(-1))
        x = self.final_proj(x)
        x = self.compute_preds(x, y, negs)
        return x, features_pen, code_ppl, prob_ppl


def spec_augment(mel_spectrogram, frequency_masking_para=3, time_masking_para=4, num=2):
    v, tau = mel_spectrogram.shape[1], mel_spectrogram.shape[2]
    for i in range(num):
        f = int(torch.rand(1) * frequency_masking_para)
        f0 = torch.randint(0, v - f, (1,)).item()
        mel_spectrogram[:, f0:f0+f, :] = 0
        t = int(np.random.uniform(low=0.0, high=time_masking_para))
        t0 = torch.randint(0, tau - t, ()).item()
        mel_spectrogram[:, :, t0:t0+t] = mel_spectrogram.mean()
    return mel_spectrogram


def program():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = Wav2Vec2Model()
    yield "model", model
    source = F.layer_norm(torch.randn(2, 160), (160,))
    frames = model.feature_extractor(source).shape[-1]
    mask = torch.zeros(2, frames, dtype=torch.bool)
    mask[:, 2:5] = True
    mask[0, 8:11] = True
    mask[1, 7:10] = True
    yield "random mask", _compute_mask_indices((3, 20), 0.4, 3, rng)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.98), eps=1e-6)
    losses = []
    for step in range(3):
        model.quantizer.set_num_updates(step)
        logits, features_pen, code_ppl, prob_ppl = model(source, mask)
        logits = logits.transpose(0, 2).reshape(-1, logits.size(0))
        target = logits.new_zeros(logits.size(0), dtype=torch.long)
        loss = F.cross_entropy(logits, target, reduction="sum")
        sample_size = target.numel()
        loss += 0.1 * sample_size * (10 - prob_ppl) / 10
        loss += 10 * features_pen * sample_size
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            yield "logits", logits
            yield "gradients", {n: p.grad for n, p in model.named_parameters()}
        optimizer.step()
        losses.append([loss.item() / sample_size, code_ppl.item(), prob_ppl.item()])
        with torch.no_grad():
            corr = ((logits.argmax(-1) == 0) & ~(logits.argmin(-1) == 0)).long().sum().item()
        losses[-1].append(corr)
    yield "losses", losses
    np.random.seed(1)
    yield "augmented", spec_augment(torch.rand(2, 10, 15))
