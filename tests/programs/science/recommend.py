"""Recommendation and tables: DLRM (facebookresearch/dlrm: EmbeddingBag with sparse=True, dot interactions), NCF, wide & deep, TabNet-like steps."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parameter import Parameter


class DLRM_Net(nn.Module):
    def create_mlp(self, ln, sigmoid_layer):
        # build MLP layer by layer
        layers = nn.ModuleList()
        for i in range(0, ln.size - 1):
            n = ln[i]
            m = ln[i + 1]

            # construct fully connected operator
            LL = nn.Linear(int(n), int(m), bias=True)

            # initialize the weights
            mean = 0.0  # std_dev = np.sqrt(variance)
            std_dev = np.sqrt(2 / (m + n))  # np.sqrt(1 / m) # np.sqrt(1 / n)
            W = np.random.normal(mean, std_dev, size=(m, n)).astype(np.float32)
            std_dev = np.sqrt(1 / m)  # np.sqrt(2 / (m + 1))
            bt = np.random.normal(mean, std_dev, size=m).astype(np.float32)
            # approach 1
            LL.weight.data = torch.tensor(W, requires_grad=True)
            LL.bias.data = torch.tensor(bt, requires_grad=True)
            layers.append(LL)

            # construct sigmoid or relu operator
            if i == sigmoid_layer:
                layers.append(nn.Sigmoid())
            else:
                layers.append(nn.ReLU())

        # approach 2: use Sequential container to wrap all layers
        return torch.nn.Sequential(*layers)

    def create_emb(self, m, ln):
        emb_l = nn.ModuleList()
        for i in range(0, ln.size):
            n = ln[i]
            EE = nn.EmbeddingBag(n, m, mode="sum", sparse=True)
            W = np.random.uniform(
                low=-np.sqrt(1 / n), high=np.sqrt(1 / n), size=(n, m)
            ).astype(np.float32)
            EE.weight.data = torch.tensor(W, requires_grad=True)
            emb_l.append(EE)
        return emb_l

    def __init__(self, m_spa, ln_emb, ln_bot, ln_top):
        super(DLRM_Net, self).__init__()
        self.emb_l = self.create_emb(m_spa, ln_emb)
        self.bot_l = self.create_mlp(ln_bot, -1)
        self.top_l = self.create_mlp(ln_top, ln_top.size - 2)
        self.loss_fn = torch.nn.BCELoss(reduction="mean")

    def apply_mlp(self, x, layers):
        return layers(x)

    def apply_emb(self, lS_o, lS_i, emb_l):
        ly = []
        for k, sparse_index_group_batch in enumerate(lS_i):
            sparse_offset_group_batch = lS_o[k]
            E = emb_l[k]
            V = E(
                sparse_index_group_batch,
                sparse_offset_group_batch,
            )
            ly.append(V)
        return ly

    def interact_features(self, x, ly):
        # concatenate dense and sparse features
        (batch_size, d) = x.shape
        T = torch.cat([x] + ly, dim=1).view((batch_size, -1, d))
        # perform a dot product
        Z = torch.bmm(T, torch.transpose(T, 1, 2))
        # append dense feature with the interactions (into a row vector)
        _, ni, nj = Z.shape
        offset = 0
        li = torch.tensor([i for i in range(ni) for j in range(i + offset)])
        lj = torch.tensor([j for i in range(nj) for j in range(i + offset)])
        Zflat = Z[:, li, lj]
        # concatenate dense features and interactions
        R = torch.cat([x] + [Zflat], dim=1)
        return R

    def forward(self, dense_x, lS_o, lS_i):
        x = self.apply_mlp(dense_x, self.bot_l)
        ly = self.apply_emb(lS_o, lS_i, self.emb_l)
        z = self.interact_features(x, ly)
        p = self.apply_mlp(z, self.top_l)
        return p


class NCF(nn.Module):
    """github.com/guoyang9/NCF: generalized matrix factorization beside an MLP."""

    def __init__(self, user_num, item_num, factor_num, num_layers, dropout):
        super(NCF, self).__init__()
        self.embed_user_GMF = nn.Embedding(user_num, factor_num)
        self.embed_item_GMF = nn.Embedding(item_num, factor_num)
        self.embed_user_MLP = nn.Embedding(
                user_num, factor_num * (2 ** (num_layers - 1)))
        self.embed_item_MLP = nn.Embedding(
                item_num, factor_num * (2 ** (num_layers - 1)))

        MLP_modules = []
        for i in range(num_layers):
            input_size = factor_num * (2 ** (num_layers - i))
            MLP_modules.append(nn.Dropout(p=dropout))
            MLP_modules.append(nn.Linear(input_size, input_size//2))
            MLP_modules.append(nn.ReLU())
        self.MLP_layers = nn.Sequential(*MLP_modules)

        self.predict_layer = nn.Linear(factor_num * 2, 1)

        self._init_weight_()

    def _init_weight_(self):
        nn.init.normal_(self.embed_user_GMF.weight, std=0.01)
        nn.init.normal_(self.embed_user_MLP.weight, std=0.01)
        nn.init.normal_(self.embed_item_GMF.weight, std=0.01)
        nn.init.normal_(self.embed_item_MLP.weight, std=0.01)

        for m in self.MLP_layers:
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
        nn.init.kaiming_uniform_(self.predict_layer.weight,
                                a=1, nonlinearity='sigmoid')

        for m in self.modules():
            if isinstance(m, nn.Linear) and m.bias is not None:
                m.bias.data.zero_()

    def forward(self, user, item):
        embed_user_GMF = self.embed_user_GMF(user)
        embed_item_GMF = self.embed_item_GMF(item)
        output_GMF = embed_user_GMF * embed_item_GMF
        embed_user_MLP = self.embed_user_MLP(user)
        embed_item_MLP = self.embed_item_MLP(item)
        interaction = torch.cat((embed_user_MLP, embed_item_MLP), -1)
        output_MLP = self.MLP_layers(interaction)

        concat = torch.cat((output_GMF, output_MLP), -1)

        prediction = self.predict_layer(concat)
        return prediction.view(-1)


class WideAndDeep(nn.Module):
    """rixwew/pytorch-fm: field offsets as NumPy, the wide part an embedding of width 1."""

    def __init__(self, field_dims, embed_dim):
        super().__init__()
        self.wide = nn.Embedding(sum(field_dims), 1)
        self.bias = nn.Parameter(torch.zeros((1,)))
        self.offsets = np.array((0, *np.cumsum(field_dims)[:-1]), dtype=np.int64)
        self.embedding = nn.Embedding(sum(field_dims), embed_dim)
        torch.nn.init.xavier_uniform_(self.embedding.weight.data)
        layers = list()
        input_dim = len(field_dims) * embed_dim
        for width in (12, 8):
            layers.append(torch.nn.Linear(input_dim, width))
            layers.append(torch.nn.BatchNorm1d(width))
            layers.append(torch.nn.ReLU())
            layers.append(torch.nn.Dropout(p=0.2))
            input_dim = width
        layers.append(torch.nn.Linear(input_dim, 1))
        self.mlp = torch.nn.Sequential(*layers)

    def forward(self, x):
        x = x + x.new_tensor(self.offsets).unsqueeze(0)
        e = self.embedding(x)
        square_of_sum = torch.sum(e, dim=1) ** 2
        sum_of_square = torch.sum(e ** 2, dim=1)
        fm = 0.5 * torch.sum(square_of_sum - sum_of_square, dim=1, keepdim=True)
        out = torch.sum(self.wide(x), dim=1) + self.bias + self.mlp(e.flatten(1)) + fm
        return torch.sigmoid(out.squeeze(1))


def sparsemax(input, dim=-1):
    """Martins and Astudillo, 2016, as in pytorch_tabnet."""
    input = input - input.max(dim=dim, keepdim=True)[0]
    input_srt, _ = torch.sort(input, descending=True, dim=dim)
    input_cumsum = input_srt.cumsum(dim) - 1
    rhos = torch.arange(1, input.size(dim) + 1, device=input.device, dtype=input.dtype)
    support = rhos * input_srt > input_cumsum
    support_size = support.sum(dim=dim).unsqueeze(dim)
    tau = input_cumsum.gather(dim, support_size - 1) / support_size.to(input.dtype)
    return torch.clamp(input - tau, min=0)


class GBN(nn.Module):
    """Ghost batch normalization: over virtual batches."""

    def __init__(self, input_dim, virtual_batch_size=8, momentum=0.01):
        super().__init__()
        self.virtual_batch_size = virtual_batch_size
        self.bn = nn.BatchNorm1d(input_dim, momentum=momentum)

    def forward(self, x):
        chunks = x.chunk(int(np.ceil(x.shape[0] / self.virtual_batch_size)), 0)
        res = [self.bn(x_) for x_ in chunks]
        return torch.cat(res, dim=0)


class TabNetStep(nn.Module):
    def __init__(self, n, width):
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(width, n, bias=False), GBN(n))
        self.fc = nn.Linear(n, 4 * width, bias=False)
        self.bn = GBN(4 * width)
        self.width = width

    def forward(self, x, prior, a):
        mask = sparsemax(self.attention(a) * prior)
        h = F.glu(self.bn(self.fc(mask * x)))
        d, a = h[:, :self.width], h[:, self.width:]
        return F.relu(d), a, prior * (1.3 - mask), (mask * torch.log(mask + 1e-15)).sum(1).mean()


def program():
    ln_emb, m_spa = np.array([4, 3, 2]), 2
    ln_bot = np.array([4, 3, 2])
    num_int = 4 * 3 // 2 + 2
    ln_top = np.array([num_int, 4, 2, 1])
    dlrm = DLRM_Net(m_spa, ln_emb, ln_bot, ln_top)
    yield "initial dlrm", dlrm
    optimizer = torch.optim.SGD(dlrm.parameters(), lr=0.1)
    for j in range(3):
        X = torch.from_numpy(np.random.rand(3, 4).astype(np.float32))
        lS_i = [torch.tensor(np.random.randint(0, n, size=5)) for n in ln_emb]
        lS_o = torch.tensor([[0, 2, 3]] * 3)
        T = torch.from_numpy(np.round(np.random.rand(3, 1)).astype(np.float32))
        Z = dlrm(X, lS_o, lS_i)
        E = dlrm.loss_fn(Z, T)
        optimizer.zero_grad()
        E.backward()
        if j == 0:
            yield "sparse", [dlrm.emb_l[0].weight.grad.is_sparse, dlrm.emb_l[0].weight.grad, dlrm.top_l[0].weight.grad]
        optimizer.step()
        print("loss {:.6f}".format(E.item()))
    yield "dlrm", dlrm

    ncf = NCF(10, 12, 4, 2, 0.1)
    yield "initial ncf", ncf
    user, item, label = torch.randint(10, (16,)), torch.randint(12, (16,)), torch.randint(2, (16,)).float()
    loss = nn.BCEWithLogitsLoss()(ncf(user, item), label)
    loss.backward()
    yield "ncf gradients", ncf
    _, indices = torch.topk(ncf(user, item), 5)
    print(torch.take(item, indices).cpu().numpy().tolist(), "%.6f" % loss)

    wide = WideAndDeep([5, 3, 7], 4)
    fields = torch.stack([torch.randint(n, (20,)) for n in (5, 3, 7)], 1)
    loss = F.binary_cross_entropy(wide(fields), label.repeat(2)[:20])
    loss.backward()
    yield "wide and deep", [loss, wide.wide.weight.grad, wide.embedding.weight.grad]

    x = torch.randn(16, 6)
    first, steps, head = nn.Linear(6, 4), nn.ModuleList([TabNetStep(6, 4) for _ in range(2)]), nn.Linear(4, 2)
    prior, total, entropy, a = torch.ones_like(x), 0, 0, first(x)
    for step in steps:
        d, a, prior, e = step(x, prior, a)
        total, entropy = total + d, entropy + e
    loss = F.cross_entropy(head(total), label.long()) - 1e-3 * entropy
    loss.backward()
    yield "tabnet", [loss, prior, steps[1].fc.weight.grad, steps[0].attention[0].weight.grad]
