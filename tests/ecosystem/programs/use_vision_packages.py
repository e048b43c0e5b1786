"""segmentation-models-pytorch, lpips, facenet-pytorch, ultralytics: a U-Net's training step, a distance of images, a face's embedding, a small YOLO."""

import json

import lpips
import segmentation_models_pytorch as smp
import torch
import warm
from facenet_pytorch import InceptionResnetV1
from ultralytics.nn.tasks import DetectionModel

found = {}
torch.manual_seed(0)
unet = smp.Unet("resnet18", encoder_weights=None, classes=2).double()  # batches of one pixel: float32 leaves three digits
image = torch.rand(2, 3, 32, 32).double()
loss = smp.losses.DiceLoss("multiclass")(unet(image), torch.randint(0, 2, (2, 32, 32)))
loss.backward()
found["unet"] = [loss.item(), unet.segmentation_head[0].weight.grad.abs().sum().item()]
torch.manual_seed(0)
distance = lpips.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False).eval()
found["lpips"] = distance(torch.rand(1, 3, 64, 64) * 2 - 1, torch.zeros(1, 3, 64, 64)).item()
torch.manual_seed(0)
face = InceptionResnetV1(pretrained=None, classify=False).eval()
with torch.no_grad():
    found["facenet"] = face(torch.rand(1, 3, 80, 80))[0, :4].tolist()
torch.manual_seed(0)
yolo = DetectionModel("yolov8n.yaml", ch=3, nc=2, verbose=False).eval()
with torch.no_grad():
    found["yolo"] = yolo(torch.rand(1, 3, 64, 64))[0][0, :, 0].tolist()
print(json.dumps(found))
picture, labels = torch.rand(1, 3, 64, 64), torch.randint(0, 2, (2, 32, 32))


def step():
    loss = smp.losses.DiceLoss("multiclass")(unet(image), labels)
    loss.backward()
    return loss.item()


warm.measure("segmentation: U-Net, forward and backward", step)
with torch.no_grad():
    warm.measure("ultralytics: YOLO, inference", lambda: yolo(picture)[0].sum().item())
