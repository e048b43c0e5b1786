"""TextCNN (Kim 2014, Shawn1993's), fastText by EmbeddingBag (PyTorch's text tutorial), a deep averaging network and ELMo-like character highway."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable
from torch.utils.data import DataLoader


class CNN_Text(nn.Module):
    def __init__(self, args):
        super(CNN_Text, self).__init__()
        self.args = args
        V = args['embed_num']
        D = args['embed_dim']
        C = args['class_num']
        Ci = 1
        Co = args['kernel_num']
        Ks = args['kernel_sizes']
        self.embed = nn.Embedding(V, D)
        self.convs = nn.ModuleList([nn.Conv2d(Ci, Co, (K, D)) for K in Ks])
        self.dropout = nn.Dropout(args['dropout'])
        self.fc1 = nn.Linear(len(Ks) * Co, C)
        if self.args['static']:
            self.embed.weight.requires_grad = False

    def forward(self, x):
        x = self.embed(x)  # (N, W, D)
        x = x.unsqueeze(1)  # (N, Ci, W, D)
        x = [F.relu(conv(x)).squeeze(3) for conv in self.convs]  # [(N, Co, W), ...]*len(Ks)
        x = [F.max_pool1d(i, i.size(2)).squeeze(2) for i in x]  # [(N, Co), ...]*len(Ks)
        x = torch.cat(x, 1)
        x = self.dropout(x)  # (N, len(Ks)*Co)
        logit = self.fc1(x)  # (N, C)
        return logit


class TextClassificationModel(nn.Module):
    def __init__(self, vocab_size, embed_dim, num_class, mode="mean"):
        super(TextClassificationModel, self).__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, embed_dim, sparse=False, mode=mode)
        self.fc = nn.Linear(embed_dim, num_class)
        self.init_weights()

    def init_weights(self):
        initrange = 0.5
        self.embedding.weight.data.uniform_(-initrange, initrange)
        self.fc.weight.data.uniform_(-initrange, initrange)
        self.fc.bias.data.zero_()

    def forward(self, text, offsets):
        embedded = self.embedding(text, offsets)
        return self.fc(embedded)


def collate_batch(batch):
    label_list, text_list, offsets = [], [], [0]
    for _label, _text in batch:
        label_list.append(_label)
        processed_text = torch.tensor(_text, dtype=torch.int64)
        text_list.append(processed_text)
        offsets.append(processed_text.size(0))
    label_list = torch.tensor(label_list, dtype=torch.int64)
    offsets = torch.tensor(offsets[:-1]).cumsum(dim=0)
    text_list = torch.cat(text_list)
    return label_list, text_list, offsets


class Highway(nn.Module):
    """AllenNLP's."""

    def __init__(self, input_dim: int, num_layers: int = 1, activation=torch.nn.functional.relu) -> None:
        super().__init__()
        self._input_dim = input_dim
        self._layers = torch.nn.ModuleList([torch.nn.Linear(input_dim, input_dim * 2) for _ in range(num_layers)])
        self._activation = activation
        for layer in self._layers:
            # Bias the highway layer to just carry its input forward, by setting the bias on B(x) to be positive
            layer.bias[input_dim:].data.fill_(1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        current_input = inputs
        for layer in self._layers:
            projected_input = layer(current_input)
            linear_part = current_input
            nonlinear_part, gate = projected_input.chunk(2, dim=-1)
            nonlinear_part = self._activation(nonlinear_part)
            gate = torch.sigmoid(gate)
            current_input = gate * linear_part + (1 - gate) * nonlinear_part
        return current_input


class CharacterEncoder(nn.Module):
    """ELMo's token encoder: characters, convolutions of several widths, maximum, highway, projection; a scalar mix of layers."""

    def __init__(self, n_chars=20, char_dim=6, filters=((1, 4), (2, 5), (3, 7)), projection=8):
        super().__init__()
        self._char_embedding_weights = nn.Parameter(torch.zeros(n_chars, char_dim).uniform_(-1, 1))
        for i, (width, num) in enumerate(filters):
            conv = torch.nn.Conv1d(in_channels=char_dim, out_channels=num, kernel_size=width, bias=True)
            self.add_module(f"char_conv_{i}", conv)
        self.n = len(filters)
        n_filters = sum(f[1] for f in filters)
        self._highways = Highway(n_filters, 2)
        self._projection = nn.Linear(n_filters, projection)
        self.lstm = nn.LSTM(projection, projection, bidirectional=True, batch_first=True)
        self.scalar_parameters = nn.ParameterList([nn.Parameter(torch.FloatTensor([0.0]), requires_grad=True) for i in range(3)])
        self.gamma = nn.Parameter(torch.FloatTensor([1.0]))

    def forward(self, inputs, mask):
        b, t, max_chars = inputs.shape
        character_embedding = torch.nn.functional.embedding(inputs.view(-1, max_chars), self._char_embedding_weights)
        character_embedding = torch.transpose(character_embedding, 1, 2)
        convs = []
        for i in range(self.n):
            conv = getattr(self, "char_conv_{}".format(i))
            convolved, _ = torch.max(conv(character_embedding), dim=-1)
            convs.append(F.relu(convolved))
        token_embedding = self._projection(self._highways(torch.cat(convs, dim=-1))).view(b, t, -1)
        out, _ = self.lstm(token_embedding)
        tensors = [torch.cat([token_embedding, token_embedding], -1) * mask.unsqueeze(-1), out, out.flip(1)]
        normed_weights = torch.nn.functional.softmax(torch.cat([parameter for parameter in self.scalar_parameters]), dim=0)
        normed_weights = torch.split(normed_weights, split_size_or_sections=1)
        pieces = []
        for weight, tensor in zip(normed_weights, tensors):
            pieces.append(weight * tensor)
        return self.gamma * sum(pieces)


def program():
    torch.manual_seed(0)
    args = dict(embed_num=40, embed_dim=8, class_num=3, kernel_num=5, kernel_sizes=[3, 4, 5], dropout=0.5, static=False)
    cnn = CNN_Text(args)
    yield "initial", cnn
    feature, target = Variable(torch.randint(0, 40, (10, 6))), Variable(torch.randint(0, 3, (6,)))
    with torch.no_grad():
        feature.t_()
    optimizer = torch.optim.Adam(cnn.parameters(), lr=0.01)
    cnn.train()
    for steps in range(1, 3):
        optimizer.zero_grad()
        logit = cnn(feature)
        loss = F.cross_entropy(logit, target)
        loss.backward()
        if steps == 1:
            yield "gradients", cnn
        optimizer.step()
        corrects = (torch.max(logit, 1)[1].view(target.size()).data == target.data).sum()
        accuracy = 100.0 * corrects / feature.shape[0]
        print('Batch[{}] - loss: {:.6f}  acc: {:.4f}%({}/{})'.format(steps, loss.item(), accuracy.item(), corrects.item(), feature.shape[0]))
    data = [(i % 3, [(7 * i + j) % 40 for j in range(i % 5)]) for i in range(10)]
    for mode in ("mean", "sum", "max"):
        model = TextClassificationModel(40, 8, 3, mode)
        yield f"initial {mode}", model
        dataloader = DataLoader(data, batch_size=5, shuffle=True, collate_fn=collate_batch)
        criterion = torch.nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1.0, gamma=0.1)
        losses = []
        for epoch in range(2):
            for idx, (label, text, offsets) in enumerate(dataloader):
                optimizer.zero_grad()
                predicted_label = model(text, offsets)
                loss = criterion(predicted_label, label)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                losses.append(loss.item())
            scheduler.step()
        yield f"{mode} losses", losses
        yield f"{mode} gradients", model
    elmo = CharacterEncoder()
    out = elmo(torch.randint(0, 20, (2, 4, 6)), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]))
    out.sum().backward()
    yield "elmo", out
    yield "elmo's gradients", elmo
