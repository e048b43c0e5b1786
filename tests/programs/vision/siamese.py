from __future__ import print_function
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import Dataset, DataLoader, Sampler


class SiameseNetwork(nn.Module):
    """
        Siamese network for image similarity estimation.
    """
    def __init__(self):
        super(SiameseNetwork, self).__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 8, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
        self.fc_in_features = 8 * 36

        # add linear layers to compare between the features of the two images
        self.fc = nn.Sequential(
            nn.Linear(self.fc_in_features * 2, 32),
            nn.ReLU(inplace=True),
            nn.Linear(32, 1),
        )

        self.sigmoid = nn.Sigmoid()

        # initialize the weights
        self.backbone.apply(self.init_weights)
        self.fc.apply(self.init_weights)

    def init_weights(self, m):
        if isinstance(m, nn.Linear):
            torch.nn.init.xavier_uniform_(m.weight)
            m.bias.data.fill_(0.01)

    def forward_once(self, x):
        output = self.backbone(x)
        output = output.view(output.size()[0], -1)
        return output

    def forward(self, input1, input2):
        # get two images' features
        output1 = self.forward_once(input1)
        output2 = self.forward_once(input2)

        # concatenate both images' features
        output = torch.cat((output1, output2), 1)

        # pass the concatenation to the linear layers
        output = self.fc(output)

        # pass the out of the linear layers to sigmoid layer
        output = self.sigmoid(output)

        return output


class APP_MATCHER(Dataset):
    def __init__(self, n):
        super(APP_MATCHER, self).__init__()
        self.data = torch.rand(n, 12, 12)
        self.targets = torch.arange(n) % 3
        self.group_examples()

    def group_examples(self):
        self.grouped_examples = {}
        for i in range(0, 3):
            self.grouped_examples[i] = (self.targets == i).nonzero(as_tuple=True)[0].tolist()

    def __len__(self):
        return self.data.shape[0]

    def __getitem__(self, index):
        selected_class = random.randint(0, 2)
        random_index_1 = random.choice(self.grouped_examples[selected_class])
        image_1 = self.data[random_index_1].clone().float()
        if index % 2 == 0:
            image_2 = self.data[random.choice(self.grouped_examples[selected_class])].clone().float()
            target = torch.tensor(1, dtype=torch.float)
        else:
            other = random.choice([c for c in range(3) if c != selected_class])
            image_2 = self.data[random.choice(self.grouped_examples[other])].clone().float()
            target = torch.tensor(0, dtype=torch.float)
        return image_1.unsqueeze(0), image_2.unsqueeze(0), target


class BalancedBatchSampler(Sampler):
    def __init__(self, labels, n_classes, n_samples):
        self.labels, self.n_classes, self.n_samples = labels, n_classes, n_samples

    def __iter__(self):
        for _ in range(2):
            batch = []
            for c in range(self.n_classes):
                where = torch.where(self.labels == c)[0]
                batch.extend(where[torch.randperm(len(where))[:self.n_samples]].tolist())
            yield batch

    def __len__(self):
        return 2


class ContrastiveLoss(nn.Module):
    def __init__(self, margin):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin
        self.eps = 1e-9

    def forward(self, output1, output2, target, size_average=True):
        distances = (output2 - output1).pow(2).sum(1)  # squared distances
        losses = 0.5 * (target.float() * distances +
                        (1 + -1 * target).float() * F.relu(self.margin - (distances + self.eps).sqrt()).pow(2))
        return losses.mean() if size_average else losses.sum()


def pdist(vectors):
    distance_matrix = -2 * vectors.mm(torch.t(vectors)) + vectors.pow(2).sum(dim=1).view(1, -1) + vectors.pow(2).sum(
        dim=1).view(-1, 1)
    return distance_matrix


def batch_hard_triplet_loss(labels, embeddings, margin):
    pairwise_dist = torch.sqrt(F.relu(pdist(embeddings)) + 1e-16)
    indices_equal = torch.eye(labels.size(0)).bool()
    label_equal = labels.unsqueeze(0) == labels.unsqueeze(1)
    mask_anchor_positive = (label_equal & ~indices_equal).float()
    anchor_positive_dist = mask_anchor_positive * pairwise_dist
    hardest_positive_dist, _ = anchor_positive_dist.max(1, keepdim=True)
    mask_anchor_negative = (~label_equal).float()
    max_anchor_negative_dist, _ = pairwise_dist.max(1, keepdim=True)
    anchor_negative_dist = pairwise_dist + max_anchor_negative_dist * (1.0 - mask_anchor_negative)
    hardest_negative_dist, _ = anchor_negative_dist.min(1, keepdim=True)
    tl = hardest_positive_dist - hardest_negative_dist + margin
    tl[tl < 0] = 0
    return tl.mean()


def program():
    model = SiameseNetwork()
    yield 'initial', model
    train_dataset = APP_MATCHER(12)
    train_loader = DataLoader(train_dataset, batch_size=4, shuffle=True, drop_last=True)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    criterion = nn.BCELoss()
    for epoch in range(1, 3):
        model.train()
        for batch_idx, (images_1, images_2, targets) in enumerate(train_loader):
            optimizer.zero_grad()
            outputs = model(images_1, images_2).squeeze()
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
            print('Train Epoch: {} [{}/{}]\tLoss: {:.6f}'.format(epoch, batch_idx * len(images_1), len(train_loader.dataset), loss.item()))
        scheduler.step()
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 16), nn.PReLU(), nn.Linear(16, 4))
    yield 'initial embedding', net
    losses = []
    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    for batch in DataLoader(list(zip(train_dataset.data, train_dataset.targets)), batch_sampler=BalancedBatchSampler(train_dataset.targets, 3, 2)):
        x, labels = batch
        e = net(x)
        triplet = nn.TripletMarginLoss(margin=1.0, p=2)(e[:2], e[2:4], e[4:6])
        custom = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: 1.0 - F.cosine_similarity(a, b))(e[:2], e[2:4], e[4:6])
        contrastive = ContrastiveLoss(1.)(e[::2], e[1::2], (labels[::2] == labels[1::2]).int())
        hard = batch_hard_triplet_loss(labels, e, 0.2)
        cosine = nn.CosineEmbeddingLoss(margin=0.1)(e[::2], e[1::2], torch.where(labels[::2] == labels[1::2], 1, -1))
        loss = triplet + custom + contrastive + hard + cosine
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append((triplet, custom, contrastive, hard, cosine))
    yield 'losses', losses
    yield 'gradients', [p.grad for p in net.parameters()]
