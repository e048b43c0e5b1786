"""Classification of padded sequences: pack_padded_sequence, sorted and not, bidirectional LSTM with its last states, self-attention pooling, pad_sequence collation."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset


class SentimentDataset(Dataset):
    def __init__(self, n=10, vocab=30):
        g = torch.Generator().manual_seed(3)
        self.items = []
        for i in range(n):
            length = int(torch.randint(2, 9, (1,), generator=g))
            text = torch.randint(1, vocab, (length,), generator=g)
            self.items.append((text, int(text.float().mean() > vocab / 2)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate_fn(batch):
    batch.sort(key=lambda x: len(x[0]), reverse=True)
    texts, labels = zip(*batch)
    lengths = torch.tensor([len(t) for t in texts])
    return pad_sequence(texts, batch_first=True, padding_value=0), lengths, torch.tensor(labels, dtype=torch.float)


class RNN(nn.Module):
    """bentrevett's sentiment classifier."""

    def __init__(self, vocab_size, embedding_dim, hidden_dim, output_dim, n_layers, bidirectional, dropout, pad_idx):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=pad_idx)
        self.rnn = nn.LSTM(embedding_dim, hidden_dim, num_layers=n_layers, bidirectional=bidirectional, dropout=0.0)
        self.fc = nn.Linear(hidden_dim * 2, output_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, text, text_lengths):
        # text = [sent len, batch size]
        embedded = self.dropout(self.embedding(text))
        # pack sequence; lengths need to be on CPU!
        packed_embedded = nn.utils.rnn.pack_padded_sequence(embedded, text_lengths.to('cpu'))
        packed_output, (hidden, cell) = self.rnn(packed_embedded)
        # unpack sequence; output over padding tokens are zero tensors
        output, output_lengths = nn.utils.rnn.pad_packed_sequence(packed_output)
        # concat the final forward (hidden[-2,:,:]) and backward (hidden[-1,:,:]) hidden layers
        hidden = self.dropout(torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1))
        return self.fc(hidden), output


class HAN(nn.Module):
    """Self-attention over packed words: works on .data, as a-PyTorch-Tutorial-to-Text-Classification."""

    def __init__(self, vocab_size, emb_size, rnn_size, att_size):
        super().__init__()
        self.embeddings = nn.Embedding(vocab_size, emb_size)
        self.word_rnn = nn.GRU(emb_size, rnn_size, num_layers=1, bidirectional=True, batch_first=True)
        self.word_attention = nn.Linear(2 * rnn_size, att_size)
        self.word_context_vector = nn.Linear(att_size, 1, bias=False)

    def forward(self, sentences, words_per_sentence):
        packed_words = pack_padded_sequence(sentences, lengths=words_per_sentence.tolist(), batch_first=True, enforce_sorted=False)
        embedded = self.embeddings(packed_words.data)
        packed_words, _ = self.word_rnn(PackedSequence(data=embedded, batch_sizes=packed_words.batch_sizes,
                                                       sorted_indices=packed_words.sorted_indices, unsorted_indices=packed_words.unsorted_indices))
        att_w = torch.tanh(self.word_attention(packed_words.data))
        att_w = self.word_context_vector(att_w).squeeze(1)
        max_value = att_w.max()
        att_w = torch.exp(att_w - max_value)
        att_w, _ = pad_packed_sequence(packed_words._replace(data=att_w), batch_first=True)
        word_alphas = att_w / torch.sum(att_w, dim=1, keepdim=True)
        sentences, _ = pad_packed_sequence(packed_words, batch_first=True)
        return (sentences * word_alphas.unsqueeze(2)).sum(dim=1), word_alphas


def binary_accuracy(preds, y):
    rounded_preds = torch.round(torch.sigmoid(preds))
    correct = (rounded_preds == y).float()
    return correct.sum() / len(correct)


def program():
    torch.manual_seed(1234)
    torch.backends.cudnn.deterministic = True
    loader = DataLoader(SentimentDataset(), batch_size=5, shuffle=True, collate_fn=collate_fn, drop_last=True)
    model = RNN(30, 8, 6, 1, 2, True, 0.5, 0)
    model.embedding.weight.data[0] = torch.zeros(8)
    yield "initial", model
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2, alpha=0.9, momentum=0.5, centered=True)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.5]))
    losses, accuracies = [], []
    for epoch in range(2):
        model.train()
        for text, lengths, label in loader:
            optimizer.zero_grad()
            predictions, output = model(text.t(), lengths)
            predictions = predictions.squeeze(1)
            loss = criterion(predictions, label)
            acc = binary_accuracy(predictions, label)
            loss.backward()
            if not losses:
                yield "first", [predictions, output, text, lengths]
                yield "gradients", model
            optimizer.step()
            losses.append(loss.item())
            accuracies.append(acc.item())
    yield "losses", [losses, accuracies]
    han = HAN(30, 8, 5, 4)
    texts = [item[0] for item in SentimentDataset(4).items]
    doc, alphas = han(pad_sequence(texts, batch_first=True), torch.tensor([len(t) for t in texts]))
    doc.pow(2).sum().backward()
    yield "attention", [doc, alphas]
    yield "attention gradients", han
    packed = pack_sequence([torch.arange(4.), torch.arange(2.), torch.arange(3.)], enforce_sorted=False)
    yield "packed", [packed.data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices]
    print(packed)
    cell = nn.RNN(3, 4, num_layers=2, batch_first=True, nonlinearity='relu')
    h = torch.zeros(2, 2, 4, requires_grad=True)
    out, hn = cell(pack_padded_sequence(torch.randn(2, 5, 3), [5, 3], batch_first=True), h)
    F.mse_loss(pad_packed_sequence(out, batch_first=True, total_length=7, padding_value=-1.0)[0], torch.zeros(2, 7, 4)).backward()
    yield "hidden gradient", [h.grad, hn, out.data]
