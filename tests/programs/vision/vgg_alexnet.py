import torch
import torch.nn as nn
from typing import Union, List, Dict, cast

cfgs: Dict[str, List[Union[str, int]]] = {
    'A': [8, 'M', 16, 'M', 32, 32, 'M'],
    'D': [8, 8, 'M', 16, 16, 'M', 32, 32, 32, 'M'],
}


class VGG(nn.Module):

    def __init__(self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5) -> None:
        super(VGG, self).__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(32 * 7 * 7, 64),
            nn.ReLU(True),
            nn.Dropout(p=dropout),
            nn.Linear(64, 64),
            nn.ReLU(True),
            nn.Dropout(p=dropout),
            nn.Linear(64, num_classes),
        )
        if init_weights:
            self._initialize_weights()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        x = self.classifier(x)
        return x

    def _initialize_weights(self) -> None:
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode='fan_out', nonlinearity='relu')
                if m.bias is not None:
                    nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.01)
                nn.init.constant_(m.bias, 0)


def make_layers(cfg: List[Union[str, int]], batch_norm: bool = False) -> nn.Sequential:
    layers: List[nn.Module] = []
    in_channels = 3
    for v in cfg:
        if v == 'M':
            layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
        else:
            v = cast(int, v)
            conv2d = nn.Conv2d(in_channels, v, kernel_size=3, padding=1)
            if batch_norm:
                layers += [conv2d, nn.BatchNorm2d(v), nn.ReLU(inplace=True)]
            else:
                layers += [conv2d, nn.ReLU(inplace=True)]
            in_channels = v
    return nn.Sequential(*layers)


class AlexNet(nn.Module):

    def __init__(self, num_classes=1000):
        super(AlexNet, self).__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, kernel_size=11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(16, 24, kernel_size=5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(24, 16, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Linear(16 * 2 * 2, 64),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(64, 64),
            nn.ReLU(inplace=True),
            nn.Linear(64, num_classes),
        )

    def forward(self, x):
        x = self.features(x)
        x = x.view(x.size(0), 16 * 2 * 2)
        x = self.classifier(x)
        return x


def program():
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for name, model, size in [
        ('vgg', VGG(make_layers(cfgs['A']), num_classes=10), 24),
        ('vgg_bn', VGG(make_layers(cfgs['D'], batch_norm=True), num_classes=10), 24),
        ('alexnet', AlexNet(num_classes=10), 95),
    ]:
        yield 'initial ' + name, model
        x = torch.randn(2, 3, size, size)
        y = torch.randint(10, size=(2,))
        optimizer = torch.optim.SGD([
            {'params': model.features.parameters(), 'lr': 1e-2},
            {'params': model.classifier.parameters()},
        ], lr=2e-2, momentum=0.9)
        for i in range(3):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            if i == 0:
                yield 'gradients ' + name, model
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            yield 'loss', loss.item()
