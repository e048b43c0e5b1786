"""DeepSpeech 2 in PyTorch (SeanNaren's): masked convolutions, SequenceWise batch norm, bidirectional sums, lookahead, CTC; greedy and prefix decoding."""
import math
from collections import OrderedDict, defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F

NEG_INF = -float("inf")


class SequenceWise(nn.Module):
    def __init__(self, module):
        """
        Collapses input of dim T*N*H to (T*N)*H, and applies to a module.
        Allows handling of variable sequence lengths and minibatch sizes.
        """
        super(SequenceWise, self).__init__()
        self.module = module

    def forward(self, x):
        t, n = x.size(0), x.size(1)
        x = x.view(t * n, -1)
        x = self.module(x)
        x = x.view(t, n, -1)
        return x

    def __repr__(self):
        tmpstr = self.__class__.__name__ + ' (\n'
        tmpstr += self.module.__repr__()
        tmpstr += ')'
        return tmpstr


class MaskConv(nn.Module):
    def __init__(self, seq_module):
        """
        Adds padding to the output of the module based on the given lengths.
        """
        super(MaskConv, self).__init__()
        self.seq_module = seq_module

    def forward(self, x, lengths):
        for module in self.seq_module:
            x = module(x)
            mask = torch.BoolTensor(x.size()).fill_(0)
            if x.is_cuda:
                mask = mask.cuda()
            for i, length in enumerate(lengths):
                length = length.item()
                if (mask[i].size(2) - length) > 0:
                    mask[i].narrow(2, length, mask[i].size(2) - length).fill_(1)
            x = x.masked_fill(mask, 0)
        return x, lengths


class InferenceBatchSoftmax(nn.Module):
    def forward(self, input_):
        if not self.training:
            return F.softmax(input_, dim=-1)
        else:
            return input_


class BatchRNN(nn.Module):
    def __init__(self, input_size, hidden_size, rnn_type=nn.LSTM, bidirectional=False, batch_norm=True):
        super(BatchRNN, self).__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bidirectional = bidirectional
        self.batch_norm = SequenceWise(nn.BatchNorm1d(input_size)) if batch_norm else None
        self.rnn = rnn_type(input_size=input_size, hidden_size=hidden_size, bidirectional=bidirectional, bias=True)
        self.num_directions = 2 if bidirectional else 1

    def flatten_parameters(self):
        self.rnn.flatten_parameters()

    def forward(self, x, output_lengths):
        if self.batch_norm is not None:
            x = self.batch_norm(x)
        x = nn.utils.rnn.pack_padded_sequence(x, output_lengths)
        x, h = self.rnn(x)
        x, _ = nn.utils.rnn.pad_packed_sequence(x)
        if self.bidirectional:
            x = x.view(x.size(0), x.size(1), 2, -1).sum(2).view(x.size(0), x.size(1), -1)  # (TxNxH*2) -> (TxNxH) by sum
        return x


class Lookahead(nn.Module):
    # Wang et al 2016 - Lookahead Convolution Layer for Unidirectional Recurrent Neural Networks
    def __init__(self, n_features, context):
        super(Lookahead, self).__init__()
        assert context > 0
        self.context = context
        self.n_features = n_features
        self.pad = (0, self.context - 1)
        self.conv = nn.Conv1d(self.n_features, self.n_features, kernel_size=self.context, stride=1, groups=self.n_features, padding=0, bias=None)

    def forward(self, x):
        x = x.transpose(0, 1).transpose(1, 2)
        x = F.pad(x, pad=self.pad, value=0)
        x = self.conv(x)
        x = x.transpose(1, 2).transpose(0, 1).contiguous()
        return x

    def __repr__(self):
        return self.__class__.__name__ + '(' \
               + 'n_features=' + str(self.n_features) \
               + ', context=' + str(self.context) + ')'


class DeepSpeech(nn.Module):
    def __init__(self, labels, n_freq=21, rnn_hidden_size=12, nb_layers=2, rnn_type=nn.LSTM, bidirectional=True, context=4):
        super(DeepSpeech, self).__init__()
        self.bidirectional = bidirectional
        num_classes = len(labels)
        self.conv = MaskConv(nn.Sequential(
            nn.Conv2d(1, 4, kernel_size=(5, 5), stride=(2, 2), padding=(2, 2)),
            nn.BatchNorm2d(4),
            nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(4, 4, kernel_size=(3, 5), stride=(2, 1), padding=(1, 2)),
            nn.BatchNorm2d(4),
            nn.Hardtanh(0, 20, inplace=True)
        ))
        rnn_input_size = int(math.floor(n_freq + 2 * 2 - 5) / 2 + 1)
        rnn_input_size = int(math.floor(rnn_input_size + 2 * 1 - 3) / 2 + 1)
        rnn_input_size *= 4
        rnns = []
        rnn = BatchRNN(input_size=rnn_input_size, hidden_size=rnn_hidden_size, rnn_type=rnn_type, bidirectional=bidirectional, batch_norm=False)
        rnns.append(('0', rnn))
        for x in range(nb_layers - 1):
            rnn = BatchRNN(input_size=rnn_hidden_size, hidden_size=rnn_hidden_size, rnn_type=rnn_type, bidirectional=bidirectional)
            rnns.append(('%d' % (x + 1), rnn))
        self.rnns = nn.Sequential(OrderedDict(rnns))
        self.lookahead = nn.Sequential(Lookahead(rnn_hidden_size, context=context), nn.Hardtanh(0, 20, inplace=True)) if not bidirectional else None
        fully_connected = nn.Sequential(nn.BatchNorm1d(rnn_hidden_size), nn.Linear(rnn_hidden_size, num_classes, bias=False))
        self.fc = nn.Sequential(SequenceWise(fully_connected), )
        self.inference_softmax = InferenceBatchSoftmax()

    def forward(self, x, lengths):
        lengths = lengths.cpu().int()
        output_lengths = self.get_seq_lens(lengths)
        x, _ = self.conv(x, output_lengths)
        sizes = x.size()
        x = x.view(sizes[0], sizes[1] * sizes[2], sizes[3])  # Collapse feature dimension
        x = x.transpose(1, 2).transpose(0, 1).contiguous()  # TxNxH
        for rnn in self.rnns:
            x = rnn(x, output_lengths)
        if not self.bidirectional:  # no need for lookahead layer in bidirectional
            x = self.lookahead(x)
        x = self.fc(x)
        x = x.transpose(0, 1)
        # identity in training mode, softmax in eval mode
        x = self.inference_softmax(x)
        return x, output_lengths

    def get_seq_lens(self, input_length):
        seq_len = input_length
        for m in self.conv.modules():
            if type(m) == nn.modules.conv.Conv2d:
                seq_len = ((seq_len + 2 * m.padding[1] - m.dilation[1] * (m.kernel_size[1] - 1) - 1) // m.stride[1] + 1)
        return seq_len.int()


def greedy(probs, sizes, labels, blank=0):
    _, max_probs = torch.max(probs, 2)
    strings = []
    for x, size in zip(max_probs, sizes):
        string = ''
        for i in range(size):
            char = labels[x[i].item()]
            if char != labels[blank]:
                # if this char is a repetition and remove_repetitions=true, then skip
                if i != 0 and char == labels[x[i - 1].item()]:
                    pass
                else:
                    string += char
        strings.append(string)
    return strings


def logsumexp(*args):
    if all(a == NEG_INF for a in args):
        return NEG_INF
    a_max = max(args)
    return a_max + math.log(sum(math.exp(a - a_max) for a in args))


def prefix_beam(probs, beam_size=4, blank=0):
    """Awni Hannun's."""
    T, S = probs.shape
    probs = torch.log(probs).numpy()
    beam = [(tuple(), (0.0, NEG_INF))]
    for t in range(T):
        next_beam = defaultdict(lambda: (NEG_INF, NEG_INF))
        for s in range(S):
            p = float(probs[t, s])
            for prefix, (p_b, p_nb) in beam:
                if s == blank:
                    n_p_b, n_p_nb = next_beam[prefix]
                    next_beam[prefix] = (logsumexp(n_p_b, p_b + p, p_nb + p), n_p_nb)
                    continue
                end_t = prefix[-1] if prefix else None
                n_prefix = prefix + (s,)
                n_p_b, n_p_nb = next_beam[n_prefix]
                next_beam[n_prefix] = (n_p_b, logsumexp(n_p_nb, p_b + p, p_nb + p) if s != end_t else logsumexp(n_p_nb, p_b + p))
                if s == end_t:
                    n_p_b, n_p_nb = next_beam[prefix]
                    next_beam[prefix] = (n_p_b, logsumexp(n_p_nb, p_nb + p))
        beam = sorted(next_beam.items(), key=lambda x: logsumexp(*x[1]), reverse=True)[:beam_size]
    best = beam[0]
    return list(best[0]), -logsumexp(*best[1])


def program():
    labels = "_'abcde "
    for name, rnn_type, bidirectional in (("lstm", nn.LSTM, True), ("gru", nn.GRU, False)):
        torch.manual_seed(123456)
        model = DeepSpeech(labels, rnn_type=rnn_type, bidirectional=bidirectional)
        yield f"initial {name}", model
        inputs = torch.randn(3, 1, 21, 24)
        input_percentages = torch.FloatTensor([1.0, 0.8, 0.6])
        target_sizes = torch.IntTensor([4, 3, 2])
        targets = torch.IntTensor([2, 3, 3, 4, 5, 7, 6, 2, 2])
        input_sizes = input_percentages.mul_(int(inputs.size(3))).int()
        criterion = nn.CTCLoss(blank=labels.index('_'), reduction='sum', zero_infinity=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=3e-4, momentum=0.9, nesterov=True, weight_decay=1e-5)
        losses = []
        for _ in range(2):
            out, output_sizes = model(inputs, input_sizes)
            out = out.transpose(0, 1)  # TxNxH
            out = out.log_softmax(-1)
            loss = criterion(out, targets, output_sizes, target_sizes)
            loss = loss / inputs.size(0)
            optimizer.zero_grad()
            loss.backward()
            if not losses:
                yield f"{name} output", [out, output_sizes]
                yield f"{name} gradients", model
            torch.nn.utils.clip_grad_norm_(model.parameters(), 400)
            optimizer.step()
            losses.append(loss.item())
        yield f"{name} losses", losses
        model.eval()
        with torch.no_grad():
            out, output_sizes = model(inputs, input_sizes)
            yield f"{name} probabilities", out
            print(greedy(out, output_sizes, labels))
            print(prefix_beam(out[0]))
