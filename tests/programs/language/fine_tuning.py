"""LoRA in its public forms (loralib's layers with merging, a parametrization), prefix tuning, fake quantisation with straight-through Functions, bitlinear."""
import math
from typing import List, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize


class LoRALayer():
    def __init__(self, r: int, lora_alpha: int, lora_dropout: float, merge_weights: bool):
        self.r = r
        self.lora_alpha = lora_alpha
        if lora_dropout > 0.:
            self.lora_dropout = nn.Dropout(p=lora_dropout)
        else:
            self.lora_dropout = lambda x: x
        # Mark the weight as unmerged
        self.merged = False
        self.merge_weights = merge_weights


class Embedding(nn.Embedding, LoRALayer):
    # LoRA implemented in a dense layer
    def __init__(self, num_embeddings: int, embedding_dim: int, r: int = 0, lora_alpha: int = 1, merge_weights: bool = True, **kwargs):
        nn.Embedding.__init__(self, num_embeddings, embedding_dim, **kwargs)
        LoRALayer.__init__(self, r=r, lora_alpha=lora_alpha, lora_dropout=0, merge_weights=merge_weights)
        if r > 0:
            self.lora_A = nn.Parameter(self.weight.new_zeros((r, num_embeddings)))
            self.lora_B = nn.Parameter(self.weight.new_zeros((embedding_dim, r)))
            self.scaling = self.lora_alpha / self.r
            # Freezing the pre-trained weight matrix
            self.weight.requires_grad = False
        self.reset_parameters()

    def reset_parameters(self):
        nn.Embedding.reset_parameters(self)
        if hasattr(self, 'lora_A'):
            # initialize A the same way as the default for nn.Linear and B to zero
            nn.init.zeros_(self.lora_A)
            nn.init.normal_(self.lora_B)

    def forward(self, x: torch.Tensor):
        if self.r > 0 and not self.merged:
            result = nn.Embedding.forward(self, x)
            after_A = F.embedding(
                x, self.lora_A.transpose(0, 1), self.padding_idx, self.max_norm,
                self.norm_type, self.scale_grad_by_freq, self.sparse
            )
            result += (after_A @ self.lora_B.transpose(0, 1)) * self.scaling
            return result
        else:
            return nn.Embedding.forward(self, x)


class MergedLinear(nn.Linear, LoRALayer):
    # LoRA implemented in a dense layer
    def __init__(self, in_features: int, out_features: int, r: int = 0, lora_alpha: int = 1, lora_dropout: float = 0.,
                 enable_lora: List[bool] = [False], fan_in_fan_out: bool = False, merge_weights: bool = True, **kwargs):
        nn.Linear.__init__(self, in_features, out_features, **kwargs)
        LoRALayer.__init__(self, r=r, lora_alpha=lora_alpha, lora_dropout=lora_dropout, merge_weights=merge_weights)
        assert out_features % len(enable_lora) == 0, 'The length of enable_lora must divide out_features'
        self.enable_lora = enable_lora
        self.fan_in_fan_out = fan_in_fan_out
        # Actual trainable parameters
        if r > 0 and any(enable_lora):
            self.lora_A = nn.Parameter(self.weight.new_zeros((r * sum(enable_lora), in_features)))
            self.lora_B = nn.Parameter(
                self.weight.new_zeros((out_features // len(enable_lora) * sum(enable_lora), r))
            ) # weights for Conv1D with groups=sum(enable_lora)
            self.scaling = self.lora_alpha / self.r
            # Freezing the pre-trained weight matrix
            self.weight.requires_grad = False
            # Compute the indices
            self.lora_ind = self.weight.new_zeros((out_features, ), dtype=torch.bool).view(len(enable_lora), -1)
            self.lora_ind[enable_lora, :] = True
            self.lora_ind = self.lora_ind.view(-1)
        self.reset_parameters()
        if fan_in_fan_out:
            self.weight.data = self.weight.data.transpose(0, 1)

    def reset_parameters(self):
        nn.Linear.reset_parameters(self)
        if hasattr(self, 'lora_A'):
            # initialize A the same way as the default for nn.Linear and B to zero
            nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
            nn.init.zeros_(self.lora_B)

    def zero_pad(self, x):
        result = x.new_zeros((len(self.lora_ind), *x.shape[1:]))
        result[self.lora_ind] = x
        return result

    def merge_AB(self):
        def T(w):
            return w.transpose(0, 1) if self.fan_in_fan_out else w
        delta_w = F.conv1d(
            self.lora_A.unsqueeze(0),
            self.lora_B.unsqueeze(-1),
            groups=sum(self.enable_lora)
        ).squeeze(0)
        return T(self.zero_pad(delta_w))

    def train(self, mode: bool = True):
        def T(w):
            return w.transpose(0, 1) if self.fan_in_fan_out else w
        nn.Linear.train(self, mode)
        if mode:
            if self.merge_weights and self.merged:
                # Make sure that the weights are not merged
                if self.r > 0 and any(self.enable_lora):
                    self.weight.data -= self.merge_AB() * self.scaling
                self.merged = False
        else:
            if self.merge_weights and not self.merged:
                # Merge the weights and mark it
                if self.r > 0 and any(self.enable_lora):
                    self.weight.data += self.merge_AB() * self.scaling
                self.merged = True
        return self

    def forward(self, x: torch.Tensor):
        def T(w):
            return w.transpose(0, 1) if self.fan_in_fan_out else w
        if self.merged:
            return F.linear(x, T(self.weight), bias=self.bias)
        else:
            result = F.linear(x, T(self.weight), bias=self.bias)
            if self.r > 0:
                result += self.lora_dropout(x) @ T(self.merge_AB().T) * self.scaling
            return result


def mark_only_lora_as_trainable(model: nn.Module, bias: str = 'none') -> None:
    for n, p in model.named_parameters():
        if 'lora_' not in n:
            p.requires_grad = False
    if bias == 'none':
        return
    elif bias == 'lora_only':
        for m in model.modules():
            if isinstance(m, LoRALayer) and hasattr(m, 'bias') and m.bias is not None:
                m.bias.requires_grad = True


def lora_state_dict(model: nn.Module):
    my_state_dict = model.state_dict()
    return {k: my_state_dict[k] for k in my_state_dict if 'lora_' in k}


class LoRAParametrization(nn.Module):
    """cccntu's minLoRA."""

    def __init__(self, fan_in, fan_out, fan_in_fan_out=False, rank=4, lora_dropout_p=0.0, lora_alpha=1):
        super().__init__()
        # if weight is stored as (fan_out, fan_in), the memory layout of A & B follows (W + BA)x
        self.swap = (lambda x: (x[1], x[0])) if fan_in_fan_out else (lambda x: x)
        self.lora_A = nn.Parameter(torch.zeros(self.swap((rank, fan_in))))
        self.lora_B = nn.Parameter(torch.zeros(self.swap((fan_out, rank))))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.lora_alpha, self.rank = lora_alpha, rank
        self.scaling = lora_alpha / rank
        self.lora_dropout = nn.Dropout(p=lora_dropout_p) if lora_dropout_p > 0 else lambda x: x
        self.dropout_fn = self._dropout if lora_dropout_p > 0 else lambda x: x
        self.register_buffer("lora_dropout_mask", torch.ones(self.swap((1, fan_in)), dtype=self.lora_A.dtype))
        self.forward_fn = self.lora_forward

    def _dropout(self, A):
        # to mimic the original implementation: A @ dropout(x), we do (A * dropout(ones)) @ x
        return A * self.lora_dropout(self.lora_dropout_mask)

    def lora_forward(self, X):
        return X + torch.matmul(*self.swap((self.lora_B, self.dropout_fn(self.lora_A)))).view(X.shape) * self.scaling

    def forward(self, X):
        return self.forward_fn(X)

    @classmethod
    def from_linear(cls, layer, rank=4, lora_dropout_p=0.0, lora_alpha=1):
        fan_out, fan_in = layer.weight.shape
        return cls(fan_in, fan_out, fan_in_fan_out=False, rank=rank, lora_dropout_p=lora_dropout_p, lora_alpha=lora_alpha)


def apply_lora(layer, register=True, merge=False):
    if register:
        if type(layer) in (nn.Linear,):
            parametrize.register_parametrization(layer, "weight", LoRAParametrization.from_linear(layer))
    else:
        if hasattr(layer, "parametrizations"):
            for attr_name in list(layer.parametrizations.keys()):
                parametrize.remove_parametrizations(layer, attr_name, leave_parametrized=merge)


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone()


class LSQ(torch.autograd.Function):
    """Learned step size quantisation (Esser et al. 2020)."""

    @staticmethod
    def forward(ctx, weight, alpha, g, Qn, Qp):
        ctx.save_for_backward(weight, alpha)
        ctx.other = g, Qn, Qp
        q_w = (weight / alpha).round().clamp(Qn, Qp)
        return q_w * alpha

    @staticmethod
    def backward(ctx, grad_weight):
        weight, alpha = ctx.saved_tensors
        g, Qn, Qp = ctx.other
        q_w = weight / alpha
        indicate_small = (q_w < Qn).float()
        indicate_big = (q_w > Qp).float()
        indicate_middle = 1.0 - indicate_small - indicate_big
        grad_alpha = ((indicate_small * Qn + indicate_big * Qp + indicate_middle * (-q_w + q_w.round())) * grad_weight * g).sum().unsqueeze(dim=0)
        grad_weight = indicate_middle * grad_weight
        return grad_weight, grad_alpha, None, None, None


class FakeQuantLinear(nn.Linear):
    def __init__(self, in_features, out_features, bits=4):
        super().__init__(in_features, out_features)
        self.bits = bits
        self.register_buffer("running_min", torch.tensor(float("inf")))
        self.register_buffer("running_max", torch.tensor(float("-inf")))
        self.alpha = nn.Parameter(torch.ones(1))
        self.alpha.data.copy_(2 * self.weight.abs().mean() / math.sqrt(2 ** (bits - 1) - 1))

    def forward(self, x):
        if self.training:
            self.running_min.data = torch.minimum(self.running_min, x.detach().min())
            self.running_max.data = torch.maximum(self.running_max, x.detach().max())
        scale = (self.running_max - self.running_min) / (2 ** 8 - 1)
        zero_point = torch.clamp(-torch.round(self.running_min / scale), 0, 255)
        x_q = torch.clamp(RoundSTE.apply(x / scale) + zero_point, 0, 255)
        x = (x_q - zero_point) * scale
        Qn, Qp = -2 ** (self.bits - 1), 2 ** (self.bits - 1) - 1
        g = 1.0 / math.sqrt(self.weight.numel() * Qp)
        return F.linear(x, LSQ.apply(self.weight, self.alpha, g, Qn, Qp), self.bias)


class BitLinear(nn.Linear):
    """BitNet b1.58's training tips: detach() as the straight-through estimator."""

    def forward(self, x):
        w = self.weight
        x_norm = F.rms_norm(x, (x.shape[-1],))
        scale = 127.0 / x_norm.abs().max(dim=-1, keepdim=True).values.clamp_(min=1e-5)
        x_quant = x_norm + ((x_norm * scale).round().clamp_(-128, 127) / scale - x_norm).detach()
        w_scale = 1.0 / w.abs().mean().clamp_(min=1e-5)
        w_quant = w + ((w * w_scale).round().clamp_(-1, 1) / w_scale - w).detach()
        return F.linear(x_quant, w_quant)


class PrefixEncoder(nn.Module):
    def __init__(self, n_prefix=3, layers=2, hidden=12, heads=3):
        super().__init__()
        self.shape = (n_prefix, layers * 2, heads, hidden // heads)
        self.embedding = nn.Embedding(n_prefix, hidden)
        self.trans = nn.Sequential(nn.Linear(hidden, 8), nn.Tanh(), nn.Linear(8, layers * 2 * hidden))

    def forward(self, prefix: Optional[torch.Tensor], batch_size):
        prefix = prefix.unsqueeze(0).expand(batch_size, -1)
        past_key_values = self.trans(self.embedding(prefix))
        past_key_values = past_key_values.view(batch_size, *self.shape)
        return past_key_values.permute([2, 0, 3, 1, 4]).split(2)


def program():
    torch.manual_seed(0)
    x, target = torch.randint(0, 20, (4, 6)), torch.randn(4, 6, 18)
    for fan_in_fan_out in (False,):
        model = nn.Sequential(Embedding(20, 8, r=2, lora_alpha=4), MergedLinear(8, 18, r=2, lora_alpha=4, enable_lora=[True, False, True]))
        mark_only_lora_as_trainable(model, bias='lora_only')
        yield "initial lora", model
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        losses = []
        for _ in range(2):
            loss = F.mse_loss(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            if not losses:
                yield "lora gradients", model
            optimizer.step()
            losses.append(loss.item())
        train_out = model(x)
        eval_out = model.eval()(x)
        yield "losses", [losses, (train_out - eval_out).abs().max().item() < 1e-5, list(lora_state_dict(model))]
        yield "merged", model
        yield "unmerged", [p.detach() for p in model.train().parameters()]
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    inputs = torch.randn(5, 8)
    before = model(inputs)
    model.apply(apply_lora)
    yield "parametrized", model
    for n, p in model.named_parameters():
        p.requires_grad_("lora_" in n)
    nn.init.normal_(model[0].parametrizations.weight[0].lora_B, std=0.1)
    model(inputs).square().sum().backward()
    yield "parametrized gradients", model
    out = model(inputs)
    model.apply(lambda l: apply_lora(l, register=False, merge=True))
    yield "folded", [before, out, model(inputs), list(model.state_dict())]
    for cls in (FakeQuantLinear, BitLinear):
        model = nn.Sequential(cls(8, 6), nn.ReLU(), cls(6, 3))
        yield f"{cls.__name__} before", model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.smooth_l1_loss(model(inputs), torch.ones(5, 3), beta=0.5)
            loss.backward()
            optimizer.step()
        yield cls.__name__, loss
        yield f"{cls.__name__} after", model
    prefix = PrefixEncoder()
    past = prefix(torch.arange(3).long(), 2)
    sum(p.square().sum() for p in past).backward()
    yield "prefix", past
    yield "prefix gradients", prefix
    fake = torch.fake_quantize_per_tensor_affine(torch.linspace(-1, 1, 9), 0.1, 3, 0, 15)
    yield "fake quantised", fake
