"""Word vectors: skip-gram with negative sampling, CBOW (PyTorch's tutorial), GloVe; nearest words and analogies."""
import collections
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

CONTEXT_SIZE = 2
raw_text = """We are about to study the idea of a computational process.
Computational processes are abstract beings that inhabit computers.
As they evolve, processes manipulate other abstract things called data.
The evolution of a process is directed by a pattern of rules
called a program. People create programs to direct processes.""".split()


class SkipGramModel(nn.Module):
    def __init__(self, emb_size, emb_dimension, sparse):
        super(SkipGramModel, self).__init__()
        self.emb_size = emb_size
        self.emb_dimension = emb_dimension
        self.u_embeddings = nn.Embedding(emb_size, emb_dimension, sparse=sparse)
        self.v_embeddings = nn.Embedding(emb_size, emb_dimension, sparse=sparse)
        initrange = 1.0 / self.emb_dimension
        nn.init.uniform_(self.u_embeddings.weight.data, -initrange, initrange)
        nn.init.constant_(self.v_embeddings.weight.data, 0)

    def forward(self, pos_u, pos_v, neg_v):
        emb_u = self.u_embeddings(pos_u)
        emb_v = self.v_embeddings(pos_v)
        emb_neg_v = self.v_embeddings(neg_v)

        score = torch.sum(torch.mul(emb_u, emb_v), dim=1)
        score = torch.clamp(score, max=10, min=-10)
        score = -F.logsigmoid(score)

        neg_score = torch.bmm(emb_neg_v, emb_u.unsqueeze(2)).squeeze()
        neg_score = torch.clamp(neg_score, max=10, min=-10)
        neg_score = -torch.sum(F.logsigmoid(-neg_score), dim=1)

        return torch.mean(score + neg_score)

    def save_embedding(self, id2word):
        embedding = self.u_embeddings.weight.cpu().data.numpy()
        return {w: embedding[wid] for wid, w in id2word.items()}


class CBOW(nn.Module):
    def __init__(self, vocab_size, embedding_dim, context_size):
        super().__init__()
        self.embeddings = nn.Embedding(vocab_size, embedding_dim, max_norm=1.0)
        self.linear1 = nn.Linear(embedding_dim, 16)
        self.linear2 = nn.Linear(16, vocab_size)

    def forward(self, inputs):
        embeds = sum(self.embeddings(inputs)).view((1, -1))
        out = F.relu(self.linear1(embeds))
        return F.log_softmax(self.linear2(out), dim=1)


def make_context_vector(context, word_to_ix):
    idxs = [word_to_ix[w] for w in context]
    return torch.tensor(idxs, dtype=torch.long)


class GloVeModel(nn.Module):
    def __init__(self, embedding_size, vocab_size, x_max=10, alpha=3 / 4):
        super().__init__()
        self.x_max, self.alpha = x_max, alpha
        self._focal_embeddings = nn.Embedding(vocab_size, embedding_size).type(torch.float64)
        self._context_embeddings = nn.Embedding(vocab_size, embedding_size).type(torch.float64)
        self._focal_biases = nn.Embedding(vocab_size, 1).type(torch.float64)
        self._context_biases = nn.Embedding(vocab_size, 1).type(torch.float64)
        for params in self.parameters():
            nn.init.uniform_(params, a=-1, b=1)

    def forward(self, focal_input, context_input, coocurrence_count):
        focal_embed = self._focal_embeddings(focal_input)
        context_embed = self._context_embeddings(context_input)
        focal_bias = self._focal_biases(focal_input)
        context_bias = self._context_biases(context_input)
        # count weight factor
        weight_factor = torch.pow(coocurrence_count / self.x_max, self.alpha)
        weight_factor[weight_factor > 1] = 1
        embedding_products = torch.sum(focal_embed * context_embed, dim=1)
        log_cooccurrences = torch.log(coocurrence_count)
        distance_expr = (embedding_products + focal_bias.squeeze() + context_bias.squeeze() + -log_cooccurrences) ** 2
        return torch.mean(weight_factor * distance_expr)


def program():
    torch.manual_seed(1)
    np.random.seed(1)
    vocab = sorted(set(raw_text))
    word_to_ix = {word: i for i, word in enumerate(vocab)}
    ids = [word_to_ix[w] for w in raw_text]
    counts = collections.Counter(ids)
    frequency = np.array([counts[i] for i in range(len(vocab))], dtype=np.float64) ** 0.75
    unigram = torch.from_numpy(frequency / frequency.sum())
    pairs = torch.tensor([(ids[i], ids[j]) for i in range(len(ids)) for j in range(max(0, i - 2), min(len(ids), i + 3)) if i != j])
    model = SkipGramModel(len(vocab), 6, sparse=False)
    yield "initial", model
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    losses = []
    for batch in pairs[torch.randperm(len(pairs))].split(64)[:3]:
        pos_u, pos_v = batch.t()
        neg_v = torch.multinomial(unigram, len(batch) * 5, replacement=True).view(-1, 5)
        optimizer.zero_grad()
        loss = model(pos_u, pos_v, neg_v)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    yield "losses", losses
    yield "gradients", model
    vectors = model.save_embedding({i: w for w, i in word_to_ix.items()})
    yield "vector", vectors["processes"]
    weight = F.normalize(model.u_embeddings.weight, dim=1)
    yield "nearest", (weight @ weight[word_to_ix["data."]]).topk(3)[1]
    yield "cosines", F.cosine_similarity(model.u_embeddings.weight.unsqueeze(1), model.u_embeddings.weight.unsqueeze(0), dim=-1)

    cbow = CBOW(len(vocab), 10, CONTEXT_SIZE)
    loss_function = nn.NLLLoss()
    optimizer = optim.SGD(cbow.parameters(), lr=0.1)
    total_loss = 0
    for i in range(CONTEXT_SIZE, 8):
        context = [raw_text[j] for j in range(i - CONTEXT_SIZE, i + CONTEXT_SIZE + 1) if j != i]
        cbow.zero_grad()
        log_probs = cbow(make_context_vector(context, word_to_ix))
        loss = loss_function(log_probs, torch.tensor([word_to_ix[raw_text[i]]], dtype=torch.long))
        loss.backward()
        optimizer.step()
        total_loss += loss.item()
    yield "cbow loss", total_loss
    yield "cbow", cbow

    glove = GloVeModel(4, len(vocab))
    optimizer = optim.Adagrad(glove.parameters(), lr=0.05)
    focal, context = pairs[:40].t()
    cooccurrences = torch.from_numpy(np.random.randint(1, 20, 40).astype(np.float64))
    losses = []
    for epoch in range(3):
        optimizer.zero_grad()
        loss = glove(focal, context, cooccurrences)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    yield "glove", losses
    yield "glove's gradients", glove
    print(math.isfinite(sum(l.item() for l in losses)))
