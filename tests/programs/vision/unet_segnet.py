""" Full assembly of the parts to form the complete network """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


class DoubleConv(nn.Module):
    """(convolution => [BN] => ReLU) * 2"""

    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        if not mid_channels:
            mid_channels = out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(mid_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True)
        )

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    """Downscaling with maxpool then double conv"""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.maxpool_conv = nn.Sequential(
            nn.MaxPool2d(2),
            DoubleConv(in_channels, out_channels)
        )

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    """Upscaling then double conv"""

    def __init__(self, in_channels, out_channels, bilinear=True):
        super().__init__()

        # if bilinear, use the normal convolutions to reduce the number of channels
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True)
            self.conv = DoubleConv(in_channels, out_channels, in_channels // 2)
        else:
            self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        # input is CHW
        diffY = x2.size()[2] - x1.size()[2]
        diffX = x2.size()[3] - x1.size()[3]

        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2,
                        diffY // 2, diffY - diffY // 2])
        # if you have padding issues, see
        # https://github.com/HaiyongJiang/U-Net-Pytorch-Unstructured-Buggy/commit/0e854509c2cea854e247a9c615f175f76fbb2e3a
        x = torch.cat([x2, x1], dim=1)
        return self.conv(x)


class OutConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super(OutConv, self).__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=1)

    def forward(self, x):
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, bilinear=False):
        super(UNet, self).__init__()
        self.n_channels = n_channels
        self.n_classes = n_classes
        self.bilinear = bilinear

        self.inc = (DoubleConv(n_channels, 8))
        self.down1 = (Down(8, 16))
        factor = 2 if bilinear else 1
        self.down2 = (Down(16, 32 // factor))
        self.up3 = (Up(32, 16 // factor, bilinear))
        self.up4 = (Up(16, 8, bilinear))
        self.outc = (OutConv(8, n_classes))

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x = self.up3(x3, x2)
        x = self.up4(x, x1)
        logits = self.outc(x)
        return logits

    def use_checkpointing(self):
        self.inc = torch.utils.checkpoint(self.inc)


def dice_coeff(input: Tensor, target: Tensor, reduce_batch_first: bool = False, epsilon: float = 1e-6):
    # Average of Dice coefficient for all batches, or for a single mask
    assert input.size() == target.size()
    assert input.dim() == 3 or not reduce_batch_first

    sum_dim = (-1, -2) if input.dim() == 2 or not reduce_batch_first else (-1, -2, -3)

    inter = 2 * (input * target).sum(dim=sum_dim)
    sets_sum = input.sum(dim=sum_dim) + target.sum(dim=sum_dim)
    sets_sum = torch.where(sets_sum == 0, inter, sets_sum)

    dice = (inter + epsilon) / (sets_sum + epsilon)
    return dice.mean()


def multiclass_dice_coeff(input: Tensor, target: Tensor, reduce_batch_first: bool = False, epsilon: float = 1e-6):
    # Average of Dice coefficient for all classes
    return dice_coeff(input.flatten(0, 1), target.flatten(0, 1), reduce_batch_first, epsilon)


def dice_loss(input: Tensor, target: Tensor, multiclass: bool = False):
    # Dice loss (objective to minimize) between 0 and 1
    fn = multiclass_dice_coeff if multiclass else dice_coeff
    return 1 - fn(input, target, reduce_batch_first=True)


class SegNet(nn.Module):
    def __init__(self, input_nbr, label_nbr):
        super(SegNet, self).__init__()

        batchNorm_momentum = 0.1

        self.conv11 = nn.Conv2d(input_nbr, 8, kernel_size=3, padding=1)
        self.bn11 = nn.BatchNorm2d(8, momentum=batchNorm_momentum)
        self.conv21 = nn.Conv2d(8, 16, kernel_size=3, padding=1)
        self.bn21 = nn.BatchNorm2d(16, momentum=batchNorm_momentum)

        self.conv21d = nn.Conv2d(16, 8, kernel_size=3, padding=1)
        self.bn21d = nn.BatchNorm2d(8, momentum=batchNorm_momentum)
        self.conv11d = nn.Conv2d(8, label_nbr, kernel_size=3, padding=1)

    def forward(self, x):
        # Stage 1
        x11 = F.relu(self.bn11(self.conv11(x)))
        x1p, id1 = F.max_pool2d(x11, kernel_size=2, stride=2, return_indices=True)
        # Stage 2
        x21 = F.relu(self.bn21(self.conv21(x1p)))
        x2p, id2 = F.max_pool2d(x21, kernel_size=2, stride=2, return_indices=True)
        # Stage 2d
        x2d = F.max_unpool2d(x2p, id2, kernel_size=2, stride=2, output_size=x21.size())
        x21d = F.relu(self.bn21d(self.conv21d(x2d)))
        # Stage 1d
        x1d = F.max_unpool2d(x21d, id1, kernel_size=2, stride=2, output_size=x11.size())
        x11d = self.conv11d(x1d)
        return x11d


def _fast_hist(label_true, label_pred, n_class):
    mask = (label_true >= 0) & (label_true < n_class)
    hist = torch.bincount(
        n_class * label_true[mask].long() + label_pred[mask], minlength=n_class ** 2
    ).reshape(n_class, n_class)
    return hist


def program():
    images = torch.randn(2, 3, 18, 22).to(device='cpu', dtype=torch.float32, memory_format=torch.channels_last)
    true_masks = torch.randint(0, 3, (2, 18, 22))
    criterion = nn.CrossEntropyLoss()
    for bilinear in False, True:
        model = UNet(n_channels=3, n_classes=3, bilinear=bilinear)
        model = model.to(memory_format=torch.channels_last)
        yield 'initial', model
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, weight_decay=1e-8, momentum=0.999, foreach=True)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'max', patience=0)  # goal: maximize Dice score
        grad_scaler = torch.amp.GradScaler('cuda', enabled=False)
        for i in range(2):
            with torch.autocast('cpu', enabled=False):
                masks_pred = model(images)
                loss = criterion(masks_pred, true_masks)
                loss += dice_loss(
                    F.softmax(masks_pred, dim=1).float(),
                    F.one_hot(true_masks, model.n_classes).permute(0, 3, 1, 2).float(),
                    multiclass=True
                )
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            if i == 0:
                yield 'gradients', model
            grad_scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            with torch.inference_mode():
                mask_pred = F.one_hot(masks_pred.argmax(dim=1), model.n_classes).permute(0, 3, 1, 2).float()
                score = multiclass_dice_coeff(mask_pred[:, 1:], F.one_hot(true_masks, 3).permute(0, 3, 1, 2).float()[:, 1:])
            scheduler.step(score)
            yield 'loss', (loss, score, optimizer.param_groups[0]['lr'])
        mask_values = [int(v) for v in torch.unique(true_masks)]
        print(mask_values)
    segnet = SegNet(3, 3)
    yield 'initial segnet', segnet
    true_masks[0, :3] = 255
    optimizer = torch.optim.SGD(segnet.parameters(), lr=0.1, momentum=0.9)
    weight = torch.FloatTensor([0.2, 0.5, 0.3])
    for i in range(3):
        optimizer.zero_grad()
        out = segnet(images)
        loss = F.cross_entropy(out, true_masks, weight=weight, ignore_index=255)
        loss.backward()
        if i == 0:
            yield 'gradients', segnet
        optimizer.step()
        hist = _fast_hist(true_masks, out.detach().max(1)[1], 3)
        iu = torch.diag(hist) / (hist.sum(dim=1) + hist.sum(dim=0) - torch.diag(hist))
        yield 'segnet', (loss, hist, iu)
