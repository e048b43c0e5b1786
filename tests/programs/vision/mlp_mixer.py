import torch
from torch import nn
from functools import partial

pair = lambda x: x if isinstance(x, tuple) else (x, x)


class Rearrange(nn.Module):
    def __init__(self, p1, p2):
        super().__init__()
        self.p1, self.p2 = p1, p2

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.reshape(b, c, h // self.p1, self.p1, w // self.p2, self.p2)
        return torch.einsum('bchpwq->bhwpqc', x).reshape(b, -1, self.p1 * self.p2 * c)


class PreNormResidual(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.fn = fn
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.fn(self.norm(x)) + x

def FeedForward(dim, expansion_factor = 4, dropout = 0., dense = nn.Linear):
    inner_dim = int(dim * expansion_factor)
    return nn.Sequential(
        dense(dim, inner_dim),
        nn.GELU(),
        nn.Dropout(dropout),
        dense(inner_dim, dim),
        nn.Dropout(dropout)
    )

class Mean(nn.Module):
    def forward(self, x):
        return x.mean(dim = 1)

def MLPMixer(*, image_size, channels, patch_size, dim, depth, num_classes, expansion_factor = 4, expansion_factor_token = 0.5, dropout = 0.):
    image_h, image_w = pair(image_size)
    assert (image_h % patch_size) == 0 and (image_w % patch_size) == 0, 'image must be divisible by patch size'
    num_patches = (image_h // patch_size) * (image_w // patch_size)
    chan_first, chan_last = partial(nn.Conv1d, kernel_size = 1), nn.Linear

    return nn.Sequential(
        Rearrange(patch_size, patch_size),
        nn.Linear((patch_size ** 2) * channels, dim),
        *[nn.Sequential(
            PreNormResidual(dim, FeedForward(num_patches, expansion_factor, dropout, chan_first)),
            PreNormResidual(dim, FeedForward(dim, expansion_factor_token, dropout, chan_last))
        ) for _ in range(depth)],
        nn.LayerNorm(dim),
        Mean(),
        nn.Linear(dim, num_classes)
    )


class Residual(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x) + x

def ConvMixer(dim, depth, kernel_size=9, patch_size=7, n_classes=1000):
    return nn.Sequential(
        nn.Conv2d(3, dim, kernel_size=patch_size, stride=patch_size),
        nn.GELU(),
        nn.BatchNorm2d(dim),
        *[nn.Sequential(
                Residual(nn.Sequential(
                    nn.Conv2d(dim, dim, kernel_size, groups=dim, padding="same"),
                    nn.GELU(),
                    nn.BatchNorm2d(dim)
                )),
                nn.Conv2d(dim, dim, kernel_size=1),
                nn.GELU(),
                nn.BatchNorm2d(dim)
        ) for i in range(depth)],
        nn.AdaptiveAvgPool2d((1,1)),
        nn.Flatten(),
        nn.Linear(dim, n_classes)
    )


def program():
    images = torch.randn(2, 3, 16, 24)
    labels = torch.randint(0, 5, (2,))
    for net in (
        MLPMixer(image_size=(16, 24), channels=3, patch_size=4, dim=16, depth=2, num_classes=5, dropout=0.1),
        ConvMixer(8, 1, kernel_size=4, patch_size=4, n_classes=5),
    ):
        yield 'initial', net
        opt = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=5e-3)
        lr_schedule = lambda t: min(t, 5 - t) / 5
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: lr_schedule(t + 1))
        train_loss, train_acc, n = 0, 0, 0
        for epoch in range(3):
            output = net(images)
            loss = nn.CrossEntropyLoss()(output, labels)
            opt.zero_grad()
            loss.backward()
            if epoch == 0:
                yield 'gradients', net
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            train_loss += loss.item() * labels.size(0)
            train_acc += (output.max(1)[1] == labels).sum().item()
            n += labels.size(0)
            print(f'Epoch: {epoch} | Train Acc: {train_acc/n:.4f}, loss {train_loss/n:.4f}, lr: {sched.get_last_lr()[0]:.6f}')
