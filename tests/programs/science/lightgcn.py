"""Sparse idioms of graph recommenders: LightGCN (gusye1234/LightGCN-PyTorch), NGCF's sparse dropout, APPNP, attention by torch.sparse.softmax,
normalisation of a Laplacian by sparse products."""

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
import torch.nn.functional as F


class LightGCN(nn.Module):
    def __init__(self, num_users, num_items, graph, latent_dim=8, n_layers=2, keep_prob=0.6, dropout=True):
        super(LightGCN, self).__init__()
        self.num_users, self.num_items = num_users, num_items
        self.latent_dim, self.n_layers, self.keep_prob, self.dropout = latent_dim, n_layers, keep_prob, dropout
        self.embedding_user = torch.nn.Embedding(
            num_embeddings=self.num_users, embedding_dim=self.latent_dim)
        self.embedding_item = torch.nn.Embedding(
            num_embeddings=self.num_items, embedding_dim=self.latent_dim)
        nn.init.normal_(self.embedding_user.weight, std=0.1)
        nn.init.normal_(self.embedding_item.weight, std=0.1)
        self.f = nn.Sigmoid()
        self.Graph = graph

    def __dropout_x(self, x, keep_prob):
        size = x.size()
        index = x.indices().t()
        values = x.values()
        random_index = torch.rand(len(values)) + keep_prob
        random_index = random_index.int().bool()
        index = index[random_index]
        values = values[random_index]/keep_prob
        g = torch.sparse.FloatTensor(index.t(), values, size)
        return g

    def computer(self):
        """
        propagate methods for lightGCN
        """
        users_emb = self.embedding_user.weight
        items_emb = self.embedding_item.weight
        all_emb = torch.cat([users_emb, items_emb])
        embs = [all_emb]
        if self.dropout and self.training:
            g_droped = self.__dropout_x(self.Graph, self.keep_prob)
        else:
            g_droped = self.Graph

        for layer in range(self.n_layers):
            all_emb = torch.sparse.mm(g_droped, all_emb)
            embs.append(all_emb)
        embs = torch.stack(embs, dim=1)
        light_out = torch.mean(embs, dim=1)
        users, items = torch.split(light_out, [self.num_users, self.num_items])
        return users, items

    def getUsersRating(self, users):
        all_users, all_items = self.computer()
        users_emb = all_users[users.long()]
        items_emb = all_items
        rating = self.f(torch.matmul(users_emb, items_emb.t()))
        return rating

    def bpr_loss(self, users, pos, neg):
        all_users, all_items = self.computer()
        users_emb, pos_emb, neg_emb = all_users[users], all_items[pos], all_items[neg]
        userEmb0, posEmb0, negEmb0 = self.embedding_user(users), self.embedding_item(pos), self.embedding_item(neg)
        reg_loss = (1/2)*(userEmb0.norm(2).pow(2) +
                         posEmb0.norm(2).pow(2)  +
                         negEmb0.norm(2).pow(2))/float(len(users))
        pos_scores = torch.mul(users_emb, pos_emb)
        pos_scores = torch.sum(pos_scores, dim=1)
        neg_scores = torch.mul(users_emb, neg_emb)
        neg_scores = torch.sum(neg_scores, dim=1)

        loss = torch.mean(torch.nn.functional.softplus(neg_scores - pos_scores))

        return loss, reg_loss


def convert_sp_mat_to_sp_tensor(X):
    coo = X.tocoo().astype(np.float32)
    row = torch.Tensor(coo.row).long()
    col = torch.Tensor(coo.col).long()
    index = torch.stack([row, col])
    data = torch.FloatTensor(coo.data)
    return torch.sparse.FloatTensor(index, data, torch.Size(coo.shape))


def sparse_dropout(x, rate, noise_shape):
    """NGCF-PyTorch."""
    random_tensor = 1 - rate
    random_tensor += torch.rand(noise_shape).to(x.device)
    dropout_mask = torch.floor(random_tensor).type(torch.bool)
    i = x._indices()
    v = x._values()

    i = i[:, dropout_mask]
    v = v[dropout_mask]

    out = torch.sparse.FloatTensor(i, v, x.shape).to(x.device)
    return out * (1. / (1 - rate))


class APPNP(nn.Module):
    def __init__(self, nfeat, nhid, nclass, A_hat, alpha=0.1, niter=3):
        super().__init__()
        self.fcs = nn.ModuleList([nn.Linear(nfeat, nhid, bias=False), nn.Linear(nhid, nclass, bias=False)])
        self.register_buffer('A_hat', A_hat)
        self.alpha, self.niter = alpha, niter

    def forward(self, x):
        local_preds = self.fcs[1](F.relu(self.fcs[0](x)))
        preds = local_preds
        for _ in range(self.niter):
            preds = (1 - self.alpha) * torch.sparse.mm(self.A_hat, preds) + self.alpha * local_preds
        return F.log_softmax(preds, dim=-1)


def program():
    rng = np.random.RandomState(0)
    users, items = 6, 8
    R = sp.csr_matrix((rng.rand(users, items) < 0.4) * 1.0)
    adj_mat = sp.dok_matrix((users + items, users + items), dtype=np.float32)
    adj_mat = adj_mat.tolil()
    adj_mat[:users, users:] = R.tolil()
    adj_mat[users:, :users] = R.tolil().T
    rowsum = np.array(adj_mat.sum(axis=1))
    d_inv = np.power(rowsum + 1e-9, -0.5).flatten()
    d_mat = sp.diags(d_inv)
    norm_adj = d_mat.dot(adj_mat.tocsr()).dot(d_mat).tocsr()
    Graph = convert_sp_mat_to_sp_tensor(norm_adj)
    Graph = Graph.coalesce()
    print(Graph.is_coalesced(), Graph._nnz(), Graph.size(), Graph.indices().shape, len(Graph.values()))

    model = LightGCN(users, items, Graph)
    yield "initial", model
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(3):
        u, p, n = torch.randint(users, (10,)), torch.randint(items, (10,)), torch.randint(items, (10,))
        loss, reg_loss = model.bpr_loss(u, p, n)
        loss = loss + reg_loss * 1e-4
        opt.zero_grad()
        loss.backward()
        if step == 0:
            yield "gradients", model
        opt.step()
        print("bpr %.6f" % loss.cpu().item())
    model.eval()
    rating = model.getUsersRating(torch.arange(3))
    rating[[0, 1, 2], [1, 2, 3]] = -(1 << 10)
    _, rating_K = torch.topk(rating, k=3)
    yield "rating", [rating, rating_K]

    dropped = sparse_dropout(Graph, 0.3, Graph._nnz())
    yield "dropped", dropped
    side = torch.sparse.mm(dropped, torch.ones(users + items, 2))
    yield "side", F.leaky_relu(side, negative_slope=0.2)

    # a Laplacian by sparse products
    n = users + items
    A = (Graph * 1.0).coalesce()
    A.values()
    A_hat = A + torch.eye(n).to_sparse()
    degree = torch.sparse.sum(A_hat, dim=1).to_dense()
    inverse = torch.sparse_coo_tensor(torch.arange(n).repeat(2, 1), degree.pow(-0.5), (n, n))
    L = torch.sparse.mm(torch.sparse.mm(inverse, A_hat), inverse)
    yield "laplacian", L
    yield "eigenvalues", torch.linalg.eigvalsh(L.to_dense())
    appnp = APPNP(5, 7, 3, L)
    F.nll_loss(appnp(torch.randn(n, 5)), torch.randint(3, (n,))).backward()
    yield "appnp", [list(appnp.state_dict()), appnp.fcs[0].weight.grad, appnp.fcs[1].weight.grad]

    # attention over edges
    h, a = torch.randn(n, 4), nn.Parameter(torch.randn(8))
    row, col = Graph.indices()
    score = F.leaky_relu(torch.cat([h[row], h[col]], 1) @ a, 0.2)
    attention = torch.sparse.softmax(torch.sparse_coo_tensor(Graph.indices(), score, (n, n)), dim=1)
    out = torch.sparse.mm(attention, h)
    out.pow(2).sum().backward()
    yield "attention", [out, a.grad]
    csr = Graph.to_sparse_csr()
    print(csr.crow_indices().tolist()[:5], csr.col_indices().dtype, (csr @ h - Graph @ h).abs().max().item() < 1e-6)
