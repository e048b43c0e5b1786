import copy
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class LeNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1)
        self.conv2 = nn.Conv2d(width, width, 3, 2)
        self.fc1 = nn.Linear(width * 36, 24)
        self.fc2 = nn.Linear(24, 5)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = x.view(x.size(0), -1)
        x = F.relu(self.fc1(x))
        return self.fc2(x)


# FGSM attack code
def fgsm_attack(image, epsilon, data_grad):
    # Collect the element-wise sign of the data gradient
    sign_data_grad = data_grad.sign()
    # Create the perturbed image by adjusting each pixel of the input image
    perturbed_image = image + epsilon*sign_data_grad
    # Adding clipping to maintain [0,1] range
    perturbed_image = torch.clamp(perturbed_image, 0, 1)
    # Return the perturbed image
    return perturbed_image


# restores the tensors to their original scale
def denorm(batch, mean=[0.1307], std=[0.3081]):
    if isinstance(mean, list):
        mean = torch.tensor(mean)
    if isinstance(std, list):
        std = torch.tensor(std)
    return batch * std.view(1, -1, 1, 1) + mean.view(1, -1, 1, 1)


def pgd_attack(model, images, labels, eps=0.3, alpha=2/255, iters=3):
    loss = nn.CrossEntropyLoss()
    ori_images = images.data
    for i in range(iters):
        images.requires_grad = True
        outputs = model(images)
        model.zero_grad()
        cost = loss(outputs, labels)
        cost.backward()
        adv_images = images + alpha*images.grad.sign()
        eta = torch.clamp(adv_images - ori_images, min=-eps, max=eps)
        images = torch.clamp(ori_images + eta, min=0, max=1).detach_()
    return images


def loss_fn_kd(outputs, labels, teacher_outputs, alpha=0.9, T=4.0):
    """
    Compute the knowledge-distillation (KD) loss given outputs, labels.
    "Hyperparameters": temperature and alpha
    """
    KD_loss = nn.KLDivLoss(reduction='batchmean')(F.log_softmax(outputs/T, dim=1),
                             F.softmax(teacher_outputs/T, dim=1)) * (alpha * T * T) + \
              F.cross_entropy(outputs, labels) * (1. - alpha)
    return KD_loss


def mixup_data(x, y, alpha=1.0):
    '''Returns mixed inputs, pairs of targets, and lambda'''
    if alpha > 0:
        lam = np.random.beta(alpha, alpha)
    else:
        lam = 1

    batch_size = x.size()[0]
    index = torch.randperm(batch_size)

    mixed_x = lam * x + (1 - lam) * x[index, :]
    y_a, y_b = y, y[index]
    return mixed_x, y_a, y_b, lam


def mixup_criterion(criterion, pred, y_a, y_b, lam):
    return lam * criterion(pred, y_a) + (1 - lam) * criterion(pred, y_b)


def rand_bbox(size, lam):
    W = size[2]
    H = size[3]
    cut_rat = np.sqrt(1. - lam)
    cut_w = int(W * cut_rat)
    cut_h = int(H * cut_rat)

    # uniform
    cx = np.random.randint(W)
    cy = np.random.randint(H)

    bbx1 = np.clip(cx - cut_w // 2, 0, W)
    bby1 = np.clip(cy - cut_h // 2, 0, H)
    bbx2 = np.clip(cx + cut_w // 2, 0, W)
    bby2 = np.clip(cy + cut_h // 2, 0, H)

    return bbx1, bby1, bbx2, bby2


class Cutout(object):
    def __init__(self, n_holes, length):
        self.n_holes = n_holes
        self.length = length

    def __call__(self, img):
        h = img.size(1)
        w = img.size(2)
        mask = np.ones((h, w), np.float32)
        for n in range(self.n_holes):
            y = np.random.randint(h)
            x = np.random.randint(w)
            y1 = np.clip(y - self.length // 2, 0, h)
            y2 = np.clip(y + self.length // 2, 0, h)
            x1 = np.clip(x - self.length // 2, 0, w)
            x2 = np.clip(x + self.length // 2, 0, w)
            mask[y1: y2, x1: x2] = 0.
        mask = torch.from_numpy(mask)
        mask = mask.expand_as(img)
        img = img * mask
        return img


class GradCam:
    def __init__(self, model, target_layer):
        self.model, self.gradients, self.activations = model, [], []
        target_layer.register_forward_hook(lambda m, i, o: self.activations.append(o.detach()))
        target_layer.register_full_backward_hook(lambda m, gi, go: self.gradients.append(go[0].detach()))

    def __call__(self, x, index=None):
        output = self.model(x)
        if index is None:
            index = np.argmax(output.cpu().data.numpy(), axis=-1)
        one_hot = np.zeros((output.size()[0], output.size()[-1]), dtype=np.float32)
        one_hot[np.arange(len(one_hot)), index] = 1
        one_hot = torch.from_numpy(one_hot).requires_grad_(True)
        one_hot = torch.sum(one_hot * output)
        self.model.zero_grad()
        one_hot.backward(retain_graph=True)
        weights = self.gradients[-1].mean(dim=(2, 3), keepdim=True)
        cam = F.relu((weights * self.activations[-1]).sum(1))
        cam -= cam.amin((1, 2), keepdim=True)
        return cam / (cam.amax((1, 2), keepdim=True) + 1e-7)


def program():
    model = LeNet()
    yield 'initial', model
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    inputs, targets = torch.rand(6, 3, 15, 15), torch.tensor([0, 1, 2, 3, 4, 0])
    cutout = Cutout(1, 5)
    inputs = torch.stack([cutout(image) for image in inputs])
    for i in range(3):
        if i % 2 == 0:
            mixed, targets_a, targets_b, lam = mixup_data(inputs, targets, 0.4)
        else:
            lam = np.random.beta(1.0, 1.0)
            rand_index = torch.randperm(inputs.size()[0])
            targets_a, targets_b = targets, targets[rand_index]
            bbx1, bby1, bbx2, bby2 = rand_bbox(inputs.size(), lam)
            mixed = inputs.clone()
            mixed[:, :, bbx1:bbx2, bby1:bby2] = inputs[rand_index, :, bbx1:bbx2, bby1:bby2]
            # adjust lambda to exactly match pixel ratio
            lam = 1 - ((bbx2 - bbx1) * (bby2 - bby1) / (inputs.size()[-1] * inputs.size()[-2]))
        outputs = model(mixed)
        loss = mixup_criterion(criterion, outputs, targets_a, targets_b, lam)
        _, predicted = torch.max(outputs.data, 1)
        correct = (lam * predicted.eq(targets_a.data).cpu().sum().float()
                   + (1 - lam) * predicted.eq(targets_b.data).cpu().sum().float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield 'mixup', (loss, correct, float(lam))
    # distillation into a smaller network
    student = LeNet(4)
    optimizer = optim.Adam(student.parameters(), lr=1e-3)
    model.eval()
    for i in range(2):
        with torch.no_grad():
            output_teacher_batch = model(inputs)
        loss = loss_fn_kd(student(inputs), targets, output_teacher_batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield 'distilled', loss
    yield 'gradients', student
    # attacks
    for epsilon in [0, .1, .3]:
        data = inputs.clone()
        data.requires_grad = True
        output = model(data)
        loss = F.nll_loss(F.log_softmax(output, 1), targets)
        model.zero_grad()
        loss.backward()
        perturbed = fgsm_attack(denorm(data), epsilon, data.grad.data)
        final_pred = model(perturbed).max(1, keepdim=True)[1]
        print('Epsilon: {} Test Accuracy = {} / {}'.format(epsilon, (final_pred.view(-1) == targets).sum().item(), 6))
    yield 'pgd', pgd_attack(model, inputs.clone(), targets)
    yield 'grad-cam', GradCam(model, model.conv2)(inputs)
