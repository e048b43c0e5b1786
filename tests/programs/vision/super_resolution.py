import math
import torch
import torch.nn as nn
import torch.nn.init as init


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super(Net, self).__init__()

        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 16, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(16, 8, (3, 3), (1, 1), (1, 1))
        self.conv4 = nn.Conv2d(8, upscale_factor ** 2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)

        self._initialize_weights()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        x = self.relu(self.conv3(x))
        x = self.pixel_shuffle(self.conv4(x))
        return x

    def _initialize_weights(self):
        init.orthogonal_(self.conv1.weight, init.calculate_gain('relu'))
        init.orthogonal_(self.conv2.weight, init.calculate_gain('relu'))
        init.orthogonal_(self.conv3.weight, init.calculate_gain('relu'))
        init.orthogonal_(self.conv4.weight)


def default_conv(in_channels, out_channels, kernel_size, bias=True):
    return nn.Conv2d(
        in_channels, out_channels, kernel_size,
        padding=(kernel_size//2), bias=bias)

class MeanShift(nn.Conv2d):
    def __init__(
        self, rgb_range,
        rgb_mean=(0.4488, 0.4371, 0.4040), rgb_std=(1.0, 1.0, 1.0), sign=-1):

        super(MeanShift, self).__init__(3, 3, kernel_size=1)
        std = torch.Tensor(rgb_std)
        self.weight.data = torch.eye(3).view(3, 3, 1, 1) / std.view(3, 1, 1, 1)
        self.bias.data = sign * rgb_range * torch.Tensor(rgb_mean) / std
        for p in self.parameters():
            p.requires_grad = False

class ResBlock(nn.Module):
    def __init__(
        self, conv, n_feats, kernel_size,
        bias=True, bn=False, act=nn.ReLU(True), res_scale=1):

        super(ResBlock, self).__init__()
        m = []
        for i in range(2):
            m.append(conv(n_feats, n_feats, kernel_size, bias=bias))
            if bn:
                m.append(nn.BatchNorm2d(n_feats))
            if i == 0:
                m.append(act)

        self.body = nn.Sequential(*m)
        self.res_scale = res_scale

    def forward(self, x):
        res = self.body(x).mul(self.res_scale)
        res += x

        return res

class Upsampler(nn.Sequential):
    def __init__(self, conv, scale, n_feats, bn=False, act=False, bias=True):

        m = []
        if (scale & (scale - 1)) == 0:    # Is scale = 2^n?
            for _ in range(int(math.log(scale, 2))):
                m.append(conv(n_feats, 4 * n_feats, 3, bias))
                m.append(nn.PixelShuffle(2))
                if bn:
                    m.append(nn.BatchNorm2d(n_feats))
                if act == 'relu':
                    m.append(nn.ReLU(True))
                elif act == 'prelu':
                    m.append(nn.PReLU(n_feats))

        elif scale == 3:
            m.append(conv(n_feats, 9 * n_feats, 3, bias))
            m.append(nn.PixelShuffle(3))
        else:
            raise NotImplementedError

        super(Upsampler, self).__init__(*m)

class EDSR(nn.Module):
    def __init__(self, n_resblocks, n_feats, scale, conv=default_conv):
        super(EDSR, self).__init__()
        kernel_size = 3
        act = nn.ReLU(True)
        self.sub_mean = MeanShift(255)
        self.add_mean = MeanShift(255, sign=1)

        # define head module
        m_head = [conv(3, n_feats, kernel_size)]

        # define body module
        m_body = [
            ResBlock(
                conv, n_feats, kernel_size, act=act, res_scale=0.1
            ) for _ in range(n_resblocks)
        ]
        m_body.append(conv(n_feats, n_feats, kernel_size))

        # define tail module
        m_tail = [
            Upsampler(conv, scale, n_feats, act=False),
            conv(n_feats, 3, kernel_size)
        ]

        self.head = nn.Sequential(*m_head)
        self.body = nn.Sequential(*m_body)
        self.tail = nn.Sequential(*m_tail)

    def forward(self, x):
        x = self.sub_mean(x)
        x = self.head(x)

        res = self.body(x)
        res += x

        x = self.tail(res)
        x = self.add_mean(x)

        return x

    def load_state_dict(self, state_dict, strict=True):
        own_state = self.state_dict()
        for name, param in state_dict.items():
            if name in own_state:
                if isinstance(param, nn.Parameter):
                    param = param.data
                try:
                    own_state[name].copy_(param)
                except Exception:
                    if name.find('tail') == -1:
                        raise RuntimeError('While copying the parameter named {}, '
                                           'whose dimensions in the model are {} and '
                                           'whose dimensions in the checkpoint are {}.'
                                           .format(name, own_state[name].size(), param.size()))
            elif strict:
                if name.find('tail') == -1:
                    raise KeyError('unexpected key "{}" in state_dict'
                                   .format(name))

## Channel Attention (CA) Layer
class CALayer(nn.Module):
    def __init__(self, channel, reduction=4):
        super(CALayer, self).__init__()
        # global average pooling: feature --> point
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        # feature channel downscale and upscale --> channel weight
        self.conv_du = nn.Sequential(
                nn.Conv2d(channel, channel // reduction, 1, padding=0, bias=True),
                nn.ReLU(inplace=True),
                nn.Conv2d(channel // reduction, channel, 1, padding=0, bias=True),
                nn.Sigmoid()
        )

    def forward(self, x):
        y = self.avg_pool(x)
        y = self.conv_du(y)
        return x * y

## Residual Channel Attention Block (RCAB)
class RCAB(nn.Module):
    def __init__(self, conv, n_feat, kernel_size, reduction, act=nn.ReLU(True)):
        super(RCAB, self).__init__()
        self.body = nn.Sequential(conv(n_feat, n_feat, kernel_size), act, conv(n_feat, n_feat, kernel_size), CALayer(n_feat, reduction))

    def forward(self, x):
        res = self.body(x)
        res += x
        return res

class ResidualGroup(nn.Module):
    def __init__(self, conv, n_feat, kernel_size, reduction, n_resblocks):
        super(ResidualGroup, self).__init__()
        modules_body = []
        modules_body = [RCAB(conv, n_feat, kernel_size, reduction) for _ in range(n_resblocks)]
        modules_body.append(conv(n_feat, n_feat, kernel_size))
        self.body = nn.Sequential(*modules_body)

    def forward(self, x):
        res = self.body(x)
        res += x
        return res

class SRResNet(nn.Module):
    def __init__(self, scaling_factor=2, n_channels=8):
        super(SRResNet, self).__init__()
        self.conv_block1 = nn.Sequential(nn.Conv2d(3, n_channels, 9, padding=4), nn.PReLU())
        self.residual = nn.Sequential(
            nn.Conv2d(n_channels, n_channels, 3, padding=1), nn.BatchNorm2d(num_features=n_channels), nn.PReLU(),
            nn.Conv2d(n_channels, n_channels, 3, padding=1), nn.BatchNorm2d(num_features=n_channels))
        self.subpixel = nn.Sequential(nn.Conv2d(n_channels, n_channels * (scaling_factor ** 2), 3, padding=1),
                                      nn.PixelShuffle(upscale_factor=scaling_factor), nn.PReLU())
        self.last = nn.Conv2d(n_channels, 3, 9, padding=4)

    def forward(self, lr_imgs):
        output = self.conv_block1(lr_imgs)
        output = output + self.residual(output)
        sr_imgs = torch.tanh(self.last(self.subpixel(output)))
        return sr_imgs


class TVLoss(nn.Module):
    def __init__(self, tv_loss_weight=1):
        super(TVLoss, self).__init__()
        self.tv_loss_weight = tv_loss_weight

    def forward(self, x):
        batch_size = x.size()[0]
        h_x = x.size()[2]
        w_x = x.size()[3]
        count_h = self.tensor_size(x[:, :, 1:, :])
        count_w = self.tensor_size(x[:, :, :, 1:])
        h_tv = torch.pow((x[:, :, 1:, :] - x[:, :, :h_x - 1, :]), 2).sum()
        w_tv = torch.pow((x[:, :, :, 1:] - x[:, :, :, :w_x - 1]), 2).sum()
        return self.tv_loss_weight * 2 * (h_tv / count_h + w_tv / count_w) / batch_size

    @staticmethod
    def tensor_size(t):
        return t.size()[1] * t.size()[2] * t.size()[3]


def calc_psnr(sr, hr):
    return 10. * torch.log10(1. / torch.mean((sr - hr) ** 2))


def program():
    model = Net(upscale_factor=3)
    yield 'espcn', model
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    input, target = torch.rand(2, 1, 8, 8), torch.rand(2, 1, 24, 24)
    epoch_loss = 0
    for iteration in range(1, 4):
        optimizer.zero_grad()
        loss = criterion(model(input), target)
        epoch_loss += loss.item()
        loss.backward()
        optimizer.step()
        print("===> Epoch[{}]({}/{}): Loss: {:.4f}".format(1, iteration, 3, loss.item()))
    psnr = 10 * math.log10(1 / criterion(model(input), target).item())
    print("===> Avg. PSNR: {:.4f} dB".format(psnr))
    torch.save(model, "model_epoch_{}.pth".format(1))
    model = torch.load("model_epoch_1.pth", weights_only=False)
    yield 'loaded', model(input)

    hr = torch.rand(2, 3, 16, 16)
    lr = nn.functional.interpolate(hr, scale_factor=0.5, mode='bicubic', align_corners=False)
    yield 'bicubic', (lr, nn.functional.interpolate(lr, scale_factor=2, mode='bicubic'), nn.functional.interpolate(hr, size=(5, 7), mode='area'))
    edsr = EDSR(1, 8, 2)
    rcan = nn.Sequential(MeanShift(1), default_conv(3, 8, 3), ResidualGroup(default_conv, 8, 3, 4, 1), Upsampler(default_conv, 2, 8, act='prelu'), default_conv(8, 3, 3), MeanShift(1, sign=1))
    tv = TVLoss(2e-8)
    for net in edsr, rcan, SRResNet():
        yield 'initial', net
        trainable = filter(lambda x: x.requires_grad, net.parameters())
        optimizer = torch.optim.Adam(trainable, lr=1e-4, betas=(0.9, 0.999), eps=1e-8)
        for i in range(2):
            sr = net(lr)
            loss = nn.L1Loss()(sr, hr) + tv(sr)
            optimizer.zero_grad()
            loss.backward()
            if i == 0:
                yield 'gradients', net
            optimizer.step()
            yield 'loss', (loss, calc_psnr(sr, hr))
    edsr.load_state_dict(EDSR(1, 8, 2).state_dict())
    yield 'copied', edsr
