"""easyocr, open_clip_torch: a small recogniser of text with its decoder and loss, the detector of lines, a small CLIP's features and loss."""

import json

import open_clip
import torch
import warm
from easyocr.craft import CRAFT
from easyocr.craft_utils import getDetBoxes
from easyocr.model.vgg_model import Model
from easyocr.utils import CTCLabelConverter

found = {}
torch.manual_seed(0)
converter = CTCLabelConverter("abcde")
recogniser = Model(1, 32, 16, len(converter.character))
images = torch.rand(2, 1, 32, 64)
scores = recogniser(images, None)
text, lengths = converter.encode(["abc", "de"])
sizes = torch.full((2,), scores.shape[1], dtype=torch.int32)
loss = torch.nn.CTCLoss(zero_infinity=True)(scores.log_softmax(2).permute(1, 0, 2), text, sizes, lengths)
loss.backward()
best = scores.argmax(2).flatten().detach().numpy()
found["recogniser"] = [loss.item(), sum(p.grad.abs().sum().item() for p in recogniser.parameters()), converter.decode_greedy(best, sizes.numpy())]
torch.manual_seed(0)
detector = CRAFT(pretrained=False).eval()
with torch.no_grad():
    maps, features = detector(torch.rand(1, 3, 64, 64))
found["detector"] = [*maps[0, 3, :4].flatten().tolist(), features.abs().sum().item()]
boxes, _, _ = getDetBoxes(maps[0, :, :, 0].sigmoid().numpy(), maps[0, :, :, 1].sigmoid().numpy(), 0.5, 0.4, 0.4)
found["boxes"] = [b.flatten().tolist() for b in boxes]
torch.manual_seed(0)
tower = {"layers": 1, "width": 16, "patch_size": 8, "image_size": 16, "head_width": 8}
clip = open_clip.CLIP(16, tower, {"context_length": 8, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1})
seen, read, scale = clip(torch.rand(3, 3, 16, 16), torch.randint(0, 50, (3, 8)))
value = open_clip.ClipLoss()(seen, read, scale)
value.backward()
found["clip"] = [value.item(), seen[0, 0].item(), read[0, 0].item(), clip.visual.conv1.weight.grad.abs().sum().item()]
print(json.dumps(found))


def step():
    scores = recogniser(images, None)
    loss = torch.nn.CTCLoss(zero_infinity=True)(scores.log_softmax(2).permute(1, 0, 2), text, sizes, lengths)
    loss.backward()
    return loss.item()


warm.measure("easyocr: recogniser, forward and backward", step)
picture = torch.rand(1, 3, 64, 64)
with torch.no_grad():
    warm.measure("easyocr: detector, inference", lambda: detector(picture)[0].sum().item())
