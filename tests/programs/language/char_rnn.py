"""PyTorch's tutorials that classify and generate names with a character-level RNN, and practical-pytorch's char-rnn with GRU and LSTM."""
import math
import random
import string

import torch
import torch.nn as nn
from torch.autograd import Variable

all_letters = string.ascii_letters + " .,;'-"
n_letters = len(all_letters) + 1  # Plus EOS marker
category_lines = {"Italian": ["Abate", "Rossi"], "Polish": ["Adamczak", "Wron"], "Irish": ["O'Neal", "Adam"]}
all_categories = list(category_lines)
n_categories = len(all_categories)


# Find letter index from all_letters, e.g. "a" = 0
def letterToIndex(letter):
    return all_letters.find(letter)


# Turn a line into a <line_length x 1 x n_letters>, or an array of one-hot letter vectors
def lineToTensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for li, letter in enumerate(line):
        tensor[li][0][letterToIndex(letter)] = 1
    return tensor


class ClassifierRNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(ClassifierRNN, self).__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size, hidden_size)
        self.h2h = nn.Linear(hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        hidden = torch.tanh(self.i2h(input) + self.h2h(hidden))
        output = self.h2o(hidden)
        output = self.softmax(output)
        return output, hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size)


def categoryFromOutput(output):
    top_n, top_i = output.topk(1)
    category_i = top_i[0].item()
    return all_categories[category_i], category_i


def randomChoice(l):
    return l[random.randint(0, len(l) - 1)]


def train(rnn, category_tensor, line_tensor, criterion, learning_rate=0.05):
    hidden = rnn.initHidden()
    rnn.zero_grad()
    for i in range(line_tensor.size()[0]):
        output, hidden = rnn(line_tensor[i], hidden)
    loss = criterion(output, category_tensor)
    loss.backward()
    # Add parameters' gradients to their values, multiplied by learning rate
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-learning_rate)
    return output, loss.item()


class GeneratorRNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(GeneratorRNN, self).__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(n_categories + input_size + hidden_size, hidden_size)
        self.i2o = nn.Linear(n_categories + input_size + hidden_size, output_size)
        self.o2o = nn.Linear(hidden_size + output_size, output_size)
        self.dropout = nn.Dropout(0.1)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, category, input, hidden):
        input_combined = torch.cat((category, input, hidden), 1)
        hidden = self.i2h(input_combined)
        output = self.i2o(input_combined)
        output_combined = torch.cat((hidden, output), 1)
        output = self.o2o(output_combined)
        output = self.dropout(output)
        output = self.softmax(output)
        return output, hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size)


def categoryTensor(category):
    li = all_categories.index(category)
    tensor = torch.zeros(1, n_categories)
    tensor[0][li] = 1
    return tensor


def targetTensor(line):
    letter_indexes = [all_letters.find(line[li]) for li in range(1, len(line))]
    letter_indexes.append(n_letters - 1) # EOS
    return torch.LongTensor(letter_indexes)


def trainGenerator(rnn, criterion, category_tensor, input_line_tensor, target_line_tensor, learning_rate=0.0005):
    target_line_tensor.unsqueeze_(-1)
    hidden = rnn.initHidden()
    rnn.zero_grad()
    loss = torch.Tensor([0]) # you can also just simply use ``loss = 0``
    for i in range(input_line_tensor.size(0)):
        output, hidden = rnn(category_tensor, input_line_tensor[i], hidden)
        l = criterion(output, target_line_tensor[i])
        loss += l
    loss.backward()
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-learning_rate)
    return output, loss.item() / input_line_tensor.size(0)


def sample(rnn, category, start_letter='A', max_length=6):
    with torch.no_grad():  # no need to track history in sampling
        category_tensor = categoryTensor(category)
        input = lineToTensor(start_letter)
        hidden = rnn.initHidden()
        output_name = start_letter
        for i in range(max_length):
            output, hidden = rnn(category_tensor, input[0], hidden)
            topv, topi = output.topk(1)
            topi = topi[0][0]
            if topi == n_letters - 1:
                break
            else:
                letter = all_letters[topi]
                output_name += letter
            input = lineToTensor(letter)
        return output_name


class CharRNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size, model="gru", n_layers=1):
        super(CharRNN, self).__init__()
        self.model = model.lower()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.output_size = output_size
        self.n_layers = n_layers
        self.encoder = nn.Embedding(input_size, hidden_size)
        if self.model == "gru":
            self.rnn = nn.GRU(hidden_size, hidden_size, n_layers)
        elif self.model == "lstm":
            self.rnn = nn.LSTM(hidden_size, hidden_size, n_layers)
        self.decoder = nn.Linear(hidden_size, output_size)

    def forward(self, input, hidden):
        batch_size = input.size(0)
        encoded = self.encoder(input)
        output, hidden = self.rnn(encoded.view(1, batch_size, -1), hidden)
        output = self.decoder(output.view(batch_size, -1))
        return output, hidden

    def init_hidden(self, batch_size):
        if self.model == "lstm":
            return (Variable(torch.zeros(self.n_layers, batch_size, self.hidden_size)),
                    Variable(torch.zeros(self.n_layers, batch_size, self.hidden_size)))
        return Variable(torch.zeros(self.n_layers, batch_size, self.hidden_size))


def generate(decoder, prime_str='A', predict_len=6, temperature=0.8):
    hidden = decoder.init_hidden(1)
    prime_input = Variable(torch.tensor([[letterToIndex(c) for c in prime_str]]))
    predicted = prime_str
    # Use priming string to "build up" hidden state
    for p in range(len(prime_str) - 1):
        _, hidden = decoder(prime_input[:, p], hidden)
    inp = prime_input[:, -1]
    for p in range(predict_len):
        output, hidden = decoder(inp, hidden)
        # Sample from the network as a multinomial distribution
        output_dist = output.data.view(-1).div(temperature).exp()
        top_i = torch.multinomial(output_dist, 1)[0]
        # Add predicted character to string and use as next input
        predicted_char = all_letters[min(int(top_i), len(all_letters) - 1)]
        predicted += predicted_char
        inp = Variable(torch.tensor([letterToIndex(predicted_char)]))
    return predicted


def program():
    torch.manual_seed(0)
    random.seed(0)
    n_hidden = 16
    rnn = ClassifierRNN(n_letters, n_hidden, n_categories)
    yield "initial", rnn
    criterion = nn.NLLLoss()
    losses = []
    for _ in range(4):
        category = randomChoice(all_categories)
        line = randomChoice(category_lines[category])
        category_tensor = torch.tensor([all_categories.index(category)], dtype=torch.long)
        output, loss = train(rnn, category_tensor, lineToTensor(line), criterion)
        guess, guess_i = categoryFromOutput(output)
        print(f"{loss:.4f} {line} / {guess} {'right' if guess == category else 'wrong (%s)' % category}")
        losses.append(loss)
    yield "losses", losses
    yield "trained", rnn

    rnn = GeneratorRNN(n_letters, n_hidden, n_letters)
    for category in all_categories:
        line = category_lines[category][0]
        output, loss = trainGenerator(rnn, criterion, categoryTensor(category), lineToTensor(line), targetTensor(line))
        losses.append(loss)
    yield "with the generator's", losses
    yield "generator", rnn
    print([sample(rnn, c) for c in all_categories])

    for model in ("gru", "lstm"):
        decoder = CharRNN(n_letters, n_hidden, n_letters, model=model, n_layers=2)
        decoder_optimizer = torch.optim.Adam(decoder.parameters(), lr=0.01)
        criterion = nn.CrossEntropyLoss()
        inp = torch.tensor([[letterToIndex(c) for c in line] for line in ("Abate", "Adamc", "Wrons")])
        hidden = decoder.init_hidden(3)
        decoder.zero_grad()
        loss = 0
        for c in range(4):
            output, hidden = decoder(inp[:, c], hidden)
            loss += criterion(output.view(3, -1), inp[:, c + 1])
        loss.backward()
        decoder_optimizer.step()
        yield model, [loss.data / 4, hidden]
        yield f"{model} gradients", decoder
        print(generate(decoder, 'Ab'), math.floor(loss.item()))
