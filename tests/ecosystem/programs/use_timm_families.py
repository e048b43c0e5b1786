"""timm: thirty-two families from a seed: a forward pass, a training step's loss and gradient."""

import json

import timm
import torch

CONVOLUTIONS = """resnet10t resnext26ts skresnet18 resnest14d res2net50_14w_8s dla46_c mobilenetv2_035 mobilenetv3_small_050 mnasnet_small lcnet_035 tinynet_e
ghostnet_050 regnetx_002 repvgg_a0 hardcorenas_a convnext_atto convnextv2_atto edgenext_xx_small mobileone_s0 efficientvit_b0 mobilevit_xxs poolformer_s12
hgnetv2_b0 starnet_s1 inception_next_atto""".split()
SIZED = "vit_tiny_patch16_224 swin_s3_tiny_224 mixer_s32_224 gmlp_ti16_224 resmlp_12_224 xcit_nano_12_p16_224 eva02_tiny_patch14_224".split()
SIZES = {"swin_s3_tiny_224": 224, "eva02_tiny_patch14_224": 56, "xcit_nano_12_p16_224": 64}
found = {}
for name in CONVOLUTIONS + SIZED:
    size = SIZES.get(name, 64)
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=4, **({"img_size": size} if name in SIZED and name != "xcit_nano_12_p16_224" else {}))
    x = torch.randn(1 if size == 224 else 4, 3, size, size)
    with torch.no_grad():
        found[name] = model.eval()(x)[0].tolist()
    model.train().double()  # batches of few pixels: float32 leaves three digits
    loss = torch.nn.functional.cross_entropy(model(x.double()), torch.tensor([1, 3] * 2)[: len(x)])
    loss.backward()
    gradient = next(p.grad for p in model.parameters() if p.grad is not None)
    found[f"{name} trained"] = [loss.item(), gradient.abs().sum().item()]
print(json.dumps(found))
