"""PointNet (github.com/fxia22/pointnet.pytorch): spatial transformers, max over points, the regulariser of the feature transform; DeepSets beside it."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.parallel
import torch.utils.data
from torch.autograd import Variable


class STN3d(nn.Module):
    def __init__(self):
        super(STN3d, self).__init__()
        self.conv1 = torch.nn.Conv1d(3, 8, 1)
        self.conv2 = torch.nn.Conv1d(8, 16, 1)
        self.fc1 = nn.Linear(16, 12)
        self.fc3 = nn.Linear(12, 9)
        self.relu = nn.ReLU()

        self.bn1 = nn.BatchNorm1d(8)
        self.bn2 = nn.BatchNorm1d(16)
        self.bn4 = nn.BatchNorm1d(12)

    def forward(self, x):
        batchsize = x.size()[0]
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = torch.max(x, 2, keepdim=True)[0]
        x = x.view(-1, 16)

        x = F.relu(self.bn4(self.fc1(x)))
        x = self.fc3(x)

        iden = Variable(torch.from_numpy(np.array([1,0,0,0,1,0,0,0,1]).astype(np.float32))).view(1,9).repeat(batchsize,1)
        if x.is_cuda:
            iden = iden.cuda()
        x = x + iden
        x = x.view(-1, 3, 3)
        return x


class STNkd(nn.Module):
    def __init__(self, k=64):
        super(STNkd, self).__init__()
        self.conv1 = torch.nn.Conv1d(k, 16, 1)
        self.fc3 = nn.Linear(16, k*k)
        self.bn1 = nn.BatchNorm1d(16)
        self.k = k

    def forward(self, x):
        batchsize = x.size()[0]
        x = F.relu(self.bn1(self.conv1(x)))
        x = torch.max(x, 2, keepdim=True)[0]
        x = x.view(-1, 16)
        x = self.fc3(x)

        iden = Variable(torch.from_numpy(np.eye(self.k).flatten().astype(np.float32))).view(1,self.k*self.k).repeat(batchsize,1)
        if x.is_cuda:
            iden = iden.cuda()
        x = x + iden
        x = x.view(-1, self.k, self.k)
        return x


class PointNetfeat(nn.Module):
    def __init__(self, global_feat = True, feature_transform = False):
        super(PointNetfeat, self).__init__()
        self.stn = STN3d()
        self.conv1 = torch.nn.Conv1d(3, 8, 1)
        self.conv2 = torch.nn.Conv1d(8, 24, 1)
        self.bn1 = nn.BatchNorm1d(8)
        self.bn2 = nn.BatchNorm1d(24)
        self.global_feat = global_feat
        self.feature_transform = feature_transform
        if self.feature_transform:
            self.fstn = STNkd(k=8)

    def forward(self, x):
        n_pts = x.size()[2]
        trans = self.stn(x)
        x = x.transpose(2, 1)
        x = torch.bmm(x, trans)
        x = x.transpose(2, 1)
        x = F.relu(self.bn1(self.conv1(x)))

        if self.feature_transform:
            trans_feat = self.fstn(x)
            x = x.transpose(2,1)
            x = torch.bmm(x, trans_feat)
            x = x.transpose(2,1)
        else:
            trans_feat = None

        pointfeat = x
        x = self.bn2(self.conv2(x))
        x = torch.max(x, 2, keepdim=True)[0]
        x = x.view(-1, 24)
        if self.global_feat:
            return x, trans, trans_feat
        else:
            x = x.view(-1, 24, 1).repeat(1, 1, n_pts)
            return torch.cat([x, pointfeat], 1), trans, trans_feat


class PointNetDenseCls(nn.Module):
    def __init__(self, k = 2, feature_transform=False):
        super(PointNetDenseCls, self).__init__()
        self.k = k
        self.feat = PointNetfeat(global_feat=False, feature_transform=feature_transform)
        self.conv1 = torch.nn.Conv1d(32, 16, 1)
        self.conv4 = torch.nn.Conv1d(16, self.k, 1)
        self.bn1 = nn.BatchNorm1d(16)

    def forward(self, x):
        batchsize = x.size()[0]
        n_pts = x.size()[2]
        x, trans, trans_feat = self.feat(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.conv4(x)
        x = x.transpose(2,1).contiguous()
        x = F.log_softmax(x.view(-1,self.k), dim=-1)
        x = x.view(batchsize, n_pts, self.k)
        return x, trans, trans_feat


def feature_transform_regularizer(trans):
    d = trans.size()[1]
    batchsize = trans.size()[0]
    I = torch.eye(d)[None, :, :]
    if trans.is_cuda:
        I = I.cuda()
    loss = torch.mean(torch.norm(torch.bmm(trans, trans.transpose(2,1)) - I, dim=(1,2)))
    return loss


class PermEqui1_max(nn.Module):
    """Zaheer et al., Deep Sets (github.com/manzilzaheer/DeepSets)."""

    def __init__(self, in_dim, out_dim):
        super(PermEqui1_max, self).__init__()
        self.Gamma = nn.Linear(in_dim, out_dim)

    def forward(self, x):
        xm, _ = x.max(1, keepdim=True)
        x = self.Gamma(x-xm)
        return x


class DeepSet(nn.Module):
    def __init__(self, x_dim, d_dim):
        super().__init__()
        self.phi = nn.Sequential(PermEqui1_max(x_dim, d_dim), nn.Tanh(), PermEqui1_max(d_dim, d_dim), nn.Tanh())
        self.ro = nn.Sequential(nn.Dropout(p=0.5), nn.Linear(d_dim, d_dim), nn.Tanh(), nn.Linear(d_dim, 2))

    def forward(self, x):
        return self.ro(self.phi(x).mean(1))


def program():
    points = torch.randn(4, 3, 20)
    target = (points[:, 0] > 0).long()
    classifier = PointNetDenseCls(k=2, feature_transform=True)
    yield "initial", classifier
    optimizer = torch.optim.Adam(classifier.parameters(), lr=0.001, betas=(0.9, 0.999))
    for i in range(3):
        optimizer.zero_grad()
        classifier = classifier.train()
        pred, trans, trans_feat = classifier(points)
        pred = pred.view(-1, 2)
        loss = F.nll_loss(pred, target.view(-1, 1)[:, 0])
        loss += feature_transform_regularizer(trans_feat) * 0.001
        loss.backward()
        if i == 0:
            yield "gradients", {n: p.grad for n, p in classifier.named_parameters() if not n.endswith("bias")}
        optimizer.step()
        pred_choice = pred.data.max(1)[1]
        correct = pred_choice.eq(target.view(-1).data).cpu().sum()
        print('[%d] train loss: %f accuracy: %f' % (i, loss.item(), correct.item() / float(80)))
    yield "prediction", pred
    sets = DeepSet(3, 8)
    yield "initial sets", sets
    F.cross_entropy(sets(points.transpose(1, 2)), torch.tensor([0, 1, 1, 0])).backward()
    yield "sets gradients", sets
