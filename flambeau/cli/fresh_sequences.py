"""Programs of `flambeau bench --fresh` over sequences: recurrent cells, packed sequences, transformers, decoding, trees, a curriculum of lengths."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Step = Callable[[int], Any]  # does step i, ends with everything computed

WORDS = 100  # in the vocabulary


def lengths(seed: int, least: int, most: int) -> list[int]:
    """All numbers between two, shuffled: a length for each step, none of them twice."""
    numbers = list(range(least, most))
    random.Random(seed).shuffle(numbers)
    return numbers


def gru_cell_loop(torch: Any, seed: int) -> Step:
    """A GRU cell called by a Python loop over sequences of new lengths; training."""
    cell, head = torch.nn.GRUCell(16, 32), torch.nn.Linear(32, 4)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
    sizes = lengths(seed, 5, 85)

    def step(i: int) -> float:
        x = torch.randn(sizes[i], 8, 16)
        h = torch.zeros(8, 32)
        for t in range(x.shape[0]):
            h = cell(x[t], h)
        loss = torch.nn.functional.cross_entropy(head(h), torch.arange(8) % 4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # type: ignore[no-any-return]

    return step


def packed_lstm(torch: Any, seed: int) -> Step:
    """An LSTM over packed sequences, whose lengths are new in each batch; training."""
    rnn = torch.nn.utils.rnn
    embedding, lstm, head = torch.nn.Embedding(WORDS, 16), torch.nn.LSTM(16, 32, batch_first=True), torch.nn.Linear(32, 2)
    optimizer = torch.optim.Adam([*embedding.parameters(), *lstm.parameters(), *head.parameters()])
    chance = random.Random(seed)

    def step(i: int) -> float:
        sizes = sorted([chance.randint(3, 40) for _ in range(8)], reverse=True)
        words = torch.randint(1, WORDS, (8, sizes[0]))
        packed = rnn.pack_padded_sequence(embedding(words), torch.tensor(sizes), batch_first=True)
        _, (h, _) = lstm(packed)
        loss = torch.nn.functional.cross_entropy(head(h[-1]), torch.arange(8) % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # type: ignore[no-any-return]

    return step


def _encoder(torch: Any) -> Any:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def padded_transformer(torch: Any, seed: int) -> Step:
    """A transformer over sentences of new lengths, with padding masks; training."""
    embedding, encoder, head = torch.nn.Embedding(WORDS, 32), _encoder(torch), torch.nn.Linear(32, 2)
    optimizer = torch.optim.AdamW([*embedding.parameters(), *encoder.parameters(), *head.parameters()], lr=1e-3)
    chance, sizes = random.Random(seed), lengths(seed, 5, 85)

    def step(i: int) -> float:
        longest = sizes[i]
        rows = torch.tensor([longest] + [chance.randint(1, longest) for _ in range(3)])
        words = torch.randint(0, WORDS, (4, longest))
        padding = torch.arange(longest)[None, :] >= rows[:, None]
        hidden = encoder(embedding(words), src_key_padding_mask=padding)
        pooled = hidden.masked_fill(padding[:, :, None], 0.0).sum(1) / rows[:, None]
        loss = torch.nn.functional.cross_entropy(head(pooled), torch.arange(4) % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # type: ignore[no-any-return]

    return step


def curriculum(torch: Any, seed: int) -> Step:
    """A model of letters trained on texts that grow by one letter a step."""
    embedding, gru, head = torch.nn.Embedding(WORDS, 24), torch.nn.GRU(24, 48, batch_first=True), torch.nn.Linear(48, WORDS)
    optimizer = torch.optim.Adam([*embedding.parameters(), *gru.parameters(), *head.parameters()])

    def step(i: int) -> float:
        words = torch.randint(0, WORDS, (8, 5 + i))
        hidden, _ = gru(embedding(words[:, :-1]))
        loss = torch.nn.functional.cross_entropy(head(hidden).reshape(-1, WORDS), words[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(gru.parameters(), 1.0)
        optimizer.step()
        return loss.item()  # type: ignore[no-any-return]

    return step


class _Decoder:
    """One layer of attention with a growing cache of keys and values, and what chooses the next word."""

    def __init__(self, torch: Any, rows: int) -> None:
        self.torch, self.rows = torch, rows
        self.embedding = torch.nn.Embedding(WORDS, 32)
        self.projections = [torch.nn.Linear(32, 32) for _ in range(4)]
        self.head = torch.nn.Linear(32, WORDS)
        self.words = torch.zeros(rows, dtype=torch.int64)
        self.keys = self.values = torch.zeros(rows, 4, 0, 8)

    def logits(self) -> Any:
        """Scores of the next word (rows, words); the cache grows by one."""
        torch, rows = self.torch, self.rows
        x = self.embedding(self.words)
        q, k, v = [p(x).view(rows, 4, 1, 8) for p in self.projections[:3]]
        self.keys, self.values = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, self.keys, self.values)
        return self.head(x + self.projections[3](mixed.reshape(rows, 32)))


def greedy_decoding(torch: Any, seed: int) -> Step:
    """Decoding with a cache that grows by one word a step; the best word is taken."""
    decoder = _Decoder(torch, 2)

    def step(i: int) -> Any:
        with torch.no_grad():
            decoder.words = decoder.logits().argmax(-1)
        return decoder.words.tolist()

    return step


def sampled_decoding(torch: Any, seed: int) -> Step:
    """The same, and the next word is drawn from the forty best."""
    decoder = _Decoder(torch, 2)

    def step(i: int) -> Any:
        with torch.no_grad():
            best, words = decoder.logits().div(0.8).topk(40, -1)
            drawn = torch.multinomial(best.softmax(-1), 1)
            decoder.words = words.gather(-1, drawn)[:, 0]
        return decoder.words.tolist()

    return step


def beam_search(torch: Any, seed: int) -> Step:
    """The same with four beams, whose caches are put in order each step."""
    decoder = _Decoder(torch, 4)
    state = {"scores": torch.zeros(4)}

    def step(i: int) -> Any:
        with torch.no_grad():
            total = state["scores"][:, None] + decoder.logits().log_softmax(-1)
            state["scores"], best = total.view(-1).topk(4)
            beams, decoder.words = best // WORDS, best % WORDS
            decoder.keys, decoder.values = decoder.keys[beams], decoder.values[beams]
        return decoder.words.tolist()

    return step


def recursive_trees(torch: Any, seed: int) -> Step:
    """A recursive network over random binary trees; training."""
    leaf, join, head = torch.nn.Embedding(WORDS, 16), torch.nn.Linear(32, 16), torch.nn.Linear(16, 2)
    optimizer = torch.optim.SGD([*leaf.parameters(), *join.parameters(), *head.parameters()], lr=0.05)
    chance = random.Random(seed)

    def tree(leaves: int) -> Any:
        if leaves == 1:
            return leaf(torch.tensor([chance.randrange(WORDS)]))
        left = chance.randint(1, leaves - 1)
        return torch.tanh(join(torch.cat((tree(left), tree(leaves - left)), 1)))

    def step(i: int) -> float:
        loss = torch.nn.functional.cross_entropy(head(tree(chance.randint(4, 16))), torch.tensor([i % 2]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # type: ignore[no-any-return]

    return step
