import copy
import math
import os
import random
import sys
from collections import OrderedDict, defaultdict, deque
from contextlib import nullcontext
import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn
from torch.utils.data import DataLoader, Dataset, Subset, ConcatDataset
from torch.utils.data.distributed import DistributedSampler


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    os.environ['PYTHONHASHSEED'] = str(seed)
    cudnn.deterministic = True
    cudnn.benchmark = False


def is_main_process():
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


class SmoothedValue(object):
    """Track a series of values and provide access to smoothed values over a
    window or the global series average.
    """
    def __init__(self, window_size=20, fmt=None):
        if fmt is None:
            fmt = "{median:.4f} ({global_avg:.4f})"
        self.deque = deque(maxlen=window_size)
        self.total = 0.0
        self.count = 0
        self.fmt = fmt

    def update(self, value, n=1):
        self.deque.append(value)
        self.count += n
        self.total += value * n

    @property
    def median(self):
        d = torch.tensor(list(self.deque))
        return d.median().item()

    @property
    def global_avg(self):
        return self.total / self.count

    def __str__(self):
        return self.fmt.format(median=self.median, global_avg=self.global_avg)


class ModelEma:
    def __init__(self, model, decay=0.9):
        self.module = copy.deepcopy(model)
        self.module.eval()
        self.decay = decay
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        msd = model.state_dict()
        for k, ema_v in self.module.state_dict().items():
            model_v = msd[k].detach()
            ema_v.copy_(ema_v * self.decay + (1. - self.decay) * model_v)


class Images(Dataset):
    def __init__(self, n, transform=None):
        self.samples = [(i, i % 3) for i in range(n)]
        self.transform = transform

    def __getitem__(self, i):
        index, target = self.samples[i]
        img = np.arange(3 * 8 * 8, dtype=np.uint8).reshape(8, 8, 3) + index
        if self.transform is not None:
            img = self.transform(img)
        return img, target

    def __len__(self):
        return len(self.samples)


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, img):
        for t in self.transforms:
            img = t(img)
        return img


class ToTensor:
    def __call__(self, pic):
        img = torch.from_numpy(pic.transpose((2, 0, 1))).contiguous()
        return img.to(dtype=torch.get_default_dtype()).div(255)


class RandomHorizontalFlip:
    def __call__(self, img):
        if torch.rand(1) < 0.5:
            return img.flip(-1)
        return img


class RandomCrop:
    def __init__(self, size, padding):
        self.size, self.padding = size, padding

    def __call__(self, img):
        img = F.pad(img, [self.padding] * 4, mode='constant', value=0)
        i = torch.randint(0, img.shape[-2] - self.size + 1, size=(1,)).item()
        j = torch.randint(0, img.shape[-1] - self.size + 1, size=(1,)).item()
        return img[..., i:i + self.size, j:j + self.size]


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, tensor):
        mean = torch.as_tensor(self.mean, dtype=tensor.dtype, device=tensor.device)
        std = torch.as_tensor(self.std, dtype=tensor.dtype, device=tensor.device)
        return tensor.clone().sub_(mean[:, None, None]).div_(std[:, None, None])


def get_params_groups(model):
    regularized = []
    not_regularized = []
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        if name.endswith(".bias") or len(param.shape) == 1:
            not_regularized.append(param)
        else:
            regularized.append(param)
    return [{'params': regularized}, {'params': not_regularized, 'weight_decay': 0.}]


def cosine_scheduler(base_value, final_value, epochs, niter_per_ep, warmup_epochs=0, start_warmup_value=0):
    warmup_schedule = np.array([])
    warmup_iters = warmup_epochs * niter_per_ep
    if warmup_epochs > 0:
        warmup_schedule = np.linspace(start_warmup_value, base_value, warmup_iters)
    iters = np.arange(epochs * niter_per_ep - warmup_iters)
    schedule = final_value + 0.5 * (base_value - final_value) * (1 + np.cos(np.pi * iters / len(iters)))
    return np.concatenate((warmup_schedule, schedule))


def save_checkpoint(state, is_best, filename='checkpoint.pth.tar'):
    torch.save(state, filename)
    if is_best:
        import shutil
        shutil.copyfile(filename, 'model_best.pth.tar')


def build():
    return nn.Sequential(OrderedDict([
        ('stem', nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))),
        ('pool', nn.AdaptiveAvgPool2d(2)), ('flatten', nn.Flatten(1)), ('head', nn.Linear(32, 3))]))


def program():
    set_seed(7)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    print(torch.cuda.device_count(), torch.backends.mps.is_available(), is_main_process())
    transform = Compose([ToTensor(), RandomCrop(8, 1), RandomHorizontalFlip(), Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))])
    dataset = ConcatDataset([Images(6, transform), Subset(Images(9, transform), [1, 3, 5, 7])])
    loader = DataLoader(dataset, batch_size=5, shuffle=True, num_workers=0, pin_memory=torch.cuda.is_available(), drop_last=False)
    sampler = DistributedSampler(dataset, num_replicas=2, rank=1, shuffle=True)
    sampler.set_epoch(3)
    print(list(sampler))
    model = build().to(device)
    ema = ModelEma(model)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.AdamW(get_params_groups(model), lr=0.)
    lr_schedule = cosine_scheduler(0.01, 1e-5, 3, len(loader), warmup_epochs=1)
    scaler = GradScaler(enabled=torch.cuda.is_available())
    meters = defaultdict(SmoothedValue)
    it, best = 0, float('inf')
    for epoch in range(3):
        model.train()
        for images, target in loader:
            for i, param_group in enumerate(optimizer.param_groups):
                param_group['lr'] = lr_schedule[it]
                if i == 0:  # only the first group is regularized
                    param_group['weight_decay'] = 0.04
            images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
            with autocast(enabled=False) if device.type == 'cuda' else nullcontext():
                output = model(images)
                loss = criterion(output, target)
            if not math.isfinite(loss.item()):
                sys.exit(1)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            ema.update(model)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            meters['loss'].update(loss.item())
            it += 1
        print('epoch', epoch, 'loss', meters['loss'])
        save_checkpoint({'epoch': epoch + 1, 'arch': 'small', 'state_dict': model.state_dict(), 'best': best,
                         'optimizer': optimizer.state_dict(), 'rng': torch.get_rng_state()}, meters['loss'].global_avg < best)
        best = min(best, meters['loss'].global_avg)
    yield 'ema', [p for p in ema.module.parameters()]
    checkpoint = torch.load('model_best.pth.tar', map_location='cpu', weights_only=False)
    resumed = nn.DataParallel(build())
    print(resumed.load_state_dict({'module.' + k: v for k, v in checkpoint['state_dict'].items()}))
    try:
        build().load_state_dict(resumed.state_dict())
    except RuntimeError as error:
        print(error)
    opt2 = torch.optim.AdamW(get_params_groups(resumed), lr=0.1)
    opt2.load_state_dict(checkpoint['optimizer'])
    print(opt2.param_groups[0]['lr'], opt2.param_groups[1]['weight_decay'], len(opt2.state))
    yield 'optimizer', opt2.state_dict()['param_groups']
    torch.set_rng_state(checkpoint['rng'])
    yield 'exact random', torch.rand(3)
    # freezing and a new head
    for param in resumed.module.stem.parameters():
        param.requires_grad = False
    resumed.module.head = nn.Linear(resumed.module.head.in_features, 4)
    features = {}
    def get_features(name):
        def hook(model, input, output):
            features[name] = output.detach()
        return hook
    handle = resumed.module.pool.register_forward_hook(get_features('pool'))
    x = torch.rand(4, 3, 8, 8)
    opt3 = torch.optim.SGD(filter(lambda p: p.requires_grad, resumed.parameters()), lr=0.1)
    swa = AveragedModel(resumed.module)
    swa_scheduler = SWALR(opt3, swa_lr=0.05, anneal_epochs=2)
    for _ in range(3):
        loss = F.cross_entropy(resumed(x), torch.tensor([0, 1, 2, 3]))
        opt3.zero_grad(); loss.backward(); opt3.step()
        swa.update_parameters(resumed.module); swa_scheduler.step()
    handle.remove()
    update_bn([x], swa)
    yield 'swa', swa
    yield 'features', features
    # low precision, tracing, compiling
    with torch.autocast(device_type='cpu', dtype=torch.bfloat16):
        y = swa(x)
        print(y.dtype)
    scripted, traced = torch.jit.script(build().eval()), torch.jit.trace(swa.module.eval(), x)
    yield 'traced', (traced(x), torch.compile(swa.module, backend='eager')(x))
    print(type(scripted(x)).__name__, torch.is_tensor(x), x.is_cuda, x.element_size() * x.nelement())
    print(torch.__version__ > '1.7', hasattr(torch, 'inference_mode'), callable(getattr(torch, 'compile', None)))
    params = dict(swa.module.named_parameters())
    yield 'functional', torch.func.functional_call(swa.module, {k: v * 0.5 for k, v in params.items()}, (x,))
    print('\n'.join(f'{n}: {tuple(p.shape)} {p.requires_grad}' for n, p in swa.named_parameters()))
