import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import numpy as np


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

        # Spatial transformer localization-network
        self.localization = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=7),
            nn.MaxPool2d(2, stride=2),
            nn.ReLU(True),
            nn.Conv2d(8, 10, kernel_size=5),
            nn.MaxPool2d(2, stride=2),
            nn.ReLU(True)
        )

        # Regressor for the 3 * 2 affine matrix
        self.fc_loc = nn.Sequential(
            nn.Linear(10 * 3 * 3, 32),
            nn.ReLU(True),
            nn.Linear(32, 3 * 2)
        )

        # Initialize the weights/bias with identity transformation
        self.fc_loc[2].weight.data.zero_()
        self.fc_loc[2].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))

    # Spatial transformer network forward function
    def stn(self, x):
        xs = self.localization(x)
        xs = xs.view(-1, 10 * 3 * 3)
        theta = self.fc_loc(xs)
        theta = theta.view(-1, 2, 3)

        grid = F.affine_grid(theta, x.size())
        x = F.grid_sample(x, grid)

        return x

    def forward(self, x):
        # transform the input
        x = self.stn(x)

        # Perform the usual forward pass
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = x.view(-1, 320)
        x = F.relu(self.fc1(x))
        x = F.dropout(x, training=self.training)
        x = self.fc2(x)
        return F.log_softmax(x, dim=1)


def roi_align(input, rois, output_size, spatial_scale=1.0, sampling_ratio=2):
    """RoI Align by bilinear sampling, after detectron's description."""
    n, c, h, w = input.shape
    idx = rois[:, 0].long()
    x1, y1, x2, y2 = (rois[:, 1:] * spatial_scale - 0.5).unbind(1)
    oh, ow = output_size
    ys = (torch.arange(oh * sampling_ratio, dtype=input.dtype) + 0.5) / (oh * sampling_ratio)
    xs = (torch.arange(ow * sampling_ratio, dtype=input.dtype) + 0.5) / (ow * sampling_ratio)
    yy = y1[:, None] + ys[None] * (y2 - y1)[:, None]
    xx = x1[:, None] + xs[None] * (x2 - x1)[:, None]
    grid = torch.stack(torch.broadcast_tensors(
        (2 * xx / (w - 1) - 1)[:, None, :], (2 * yy / (h - 1) - 1)[:, :, None]), dim=-1)
    sampled = F.grid_sample(input[idx], grid, mode='bilinear', padding_mode='border', align_corners=True)
    return F.avg_pool2d(sampled, sampling_ratio)


def convert_image_np(inp):
    """Convert a Tensor to numpy image."""
    inp = inp.numpy().transpose((1, 2, 0))
    mean = np.array([0.485, 0.456, 0.406])
    std = np.array([0.229, 0.224, 0.225])
    inp = std * inp + mean
    inp = np.clip(inp, 0, 1)
    return inp


def program():
    model = Net()
    yield 'initial', model
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    data, target = torch.rand(4, 1, 28, 28), torch.tensor([3, 1, 4, 1])
    model.train()
    for batch_idx in range(3):
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        if batch_idx == 0:
            yield 'gradients', model
        optimizer.step()
        print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(1, batch_idx * len(data), 12, 100. * batch_idx / 3, loss.item()))
    with torch.no_grad():
        model.eval()
        output = model(data)
        # sum up batch loss
        test_loss = F.nll_loss(output, target, size_average=False).item()
        # get the index of the max log-probability
        pred = output.max(1, keepdim=True)[1]
        correct = pred.eq(target.view_as(pred)).sum().item()
        print('Test set: Average loss: {:.4f}, Accuracy: {}/{}'.format(test_loss, correct, len(data)))
        yield 'transformed', convert_image_np(model.stn(data)[0].expand(3, -1, -1))
    features = torch.randn(2, 3, 10, 12, requires_grad=True)
    rois = torch.tensor([[0, 1., 1., 8., 6.], [1, 0., 2., 11., 9.], [0, 3.3, 2.2, 7.7, 8.8]])
    out = roi_align(features, rois, (3, 4))
    (out ** 2).sum().backward()
    yield 'roi align', (out, features.grad)
    theta = torch.tensor([[[0.8, 0.2, 0.1], [-0.3, 1.1, 0.0]]]).expand(2, -1, -1)
    for mode in 'bilinear', 'nearest', 'bicubic':
        for padding_mode in 'zeros', 'border', 'reflection':
            grid = F.affine_grid(theta, features.shape, align_corners=False)
            yield mode + padding_mode, F.grid_sample(features.detach(), grid, mode=mode, padding_mode=padding_mode, align_corners=False)
