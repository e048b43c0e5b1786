"""torchmetrics, einops, torchdiffeq, x-transformers, vit-pytorch, torchinfo, torchviz, captum, pytorch-metric-learning, safetensors: a line or two of each."""

import json

import torch
import torchmetrics
import warm
from captum.attr import IntegratedGradients
from einops import rearrange
from einops.layers.torch import Rearrange
from pytorch_metric_learning import losses
from safetensors.torch import load, save
from torchdiffeq import odeint
from torchinfo import summary
from torchviz import make_dot
from vit_pytorch import ViT
from x_transformers import Decoder, TransformerWrapper

found = {}
torch.manual_seed(0)
accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)
accuracy(torch.randn(8, 3).softmax(-1), torch.randint(0, 3, (8,)))
found["torchmetrics"] = [accuracy.compute().item(), torchmetrics.functional.pearson_corrcoef(torch.randn(9), torch.randn(9)).item()]
x = torch.randn(2, 6, 4)
found["einops"] = (rearrange(x, "b (h w) c -> b c h w", h=2) - Rearrange("b (h w) c -> b c h w", h=2)(x)).abs().sum().item()
found["torchdiffeq"] = odeint(lambda t, y: -y, torch.tensor([1.0, 2.0]), torch.linspace(0, 1, 3))[-1].tolist()
decoder = TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=Decoder(dim=16, depth=1, heads=2))
found["x-transformers"] = decoder(torch.randint(0, 20, (1, 8)))[0, 0, :4].tolist()
vit = ViT(image_size=16, patch_size=8, num_classes=3, dim=16, depth=1, heads=2, mlp_dim=16).eval()
found["vit-pytorch"] = vit(torch.randn(1, 3, 16, 16))[0].tolist()
found["torchinfo"] = summary(vit, input_size=(1, 3, 16, 16), verbose=0).total_params
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
found["captum"] = IntegratedGradients(net).attribute(torch.ones(1, 3), target=1).flatten().tolist()
found["metric learning"] = losses.TripletMarginLoss()(torch.randn(8, 4), torch.randint(0, 3, (8,))).item()
found["safetensors"] = load(save({"a": torch.arange(3.0)}))["a"].tolist()
dot = make_dot(net(torch.ones(1, 3)), params=dict(net.named_parameters())).source
found["torchviz"] = [dot.count(part) for part in ("label=AddmmBackward0]", "label=TBackward0]", "label=AccumulateGrad]", " -> ", "net.0.weight", "0.weight")]
print(json.dumps(found))
ids, picture = torch.randint(0, 20, (1, 8)), torch.randn(1, 3, 16, 16)


def step():
    loss = decoder(ids).square().mean()
    loss.backward()
    return loss.item()


warm.measure("x-transformers: forward and backward", step)
with torch.no_grad():
    warm.measure("vit-pytorch: inference", lambda: vit(picture).sum().item())
warm.measure("torchdiffeq: a solution", lambda: odeint(lambda t, y: -y, torch.tensor([1.0, 2.0]), torch.linspace(0, 1, 3)).sum().item())
warm.measure("captum: integrated gradients", lambda: IntegratedGradients(net).attribute(torch.ones(1, 3), target=1).sum().item())
