"""Pointer networks (greedy decoding with masks), a neural Turing machine (circular shifts by convolution) and end-to-end memory networks."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import nn
from torch.nn import Parameter


class Encoder(nn.Module):
    def __init__(self, embedding_dim, hidden_dim, n_layers, dropout, bidir):
        super(Encoder, self).__init__()
        self.hidden_dim = hidden_dim//2 if bidir else hidden_dim
        self.n_layers = n_layers*2 if bidir else n_layers
        self.bidir = bidir
        self.lstm = nn.LSTM(embedding_dim, self.hidden_dim, n_layers, dropout=dropout, bidirectional=bidir)
        # Used for propagating .cuda() command
        self.h0 = Parameter(torch.zeros(1), requires_grad=False)
        self.c0 = Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, embedded_inputs, hidden):
        embedded_inputs = embedded_inputs.permute(1, 0, 2)
        outputs, hidden = self.lstm(embedded_inputs, hidden)
        return outputs.permute(1, 0, 2), hidden

    def init_hidden(self, embedded_inputs):
        batch_size = embedded_inputs.size(0)
        # Reshaping (Expanding)
        h0 = self.h0.unsqueeze(0).unsqueeze(0).repeat(self.n_layers, batch_size, self.hidden_dim)
        c0 = self.h0.unsqueeze(0).unsqueeze(0).repeat(self.n_layers, batch_size, self.hidden_dim)
        return h0, c0


class Attention(nn.Module):
    def __init__(self, input_dim, hidden_dim):
        super(Attention, self).__init__()
        self.input_linear = nn.Linear(input_dim, hidden_dim)
        self.context_linear = nn.Conv1d(input_dim, hidden_dim, 1, 1)
        self.V = Parameter(torch.FloatTensor(hidden_dim), requires_grad=True)
        self._inf = Parameter(torch.FloatTensor([float('-inf')]), requires_grad=False)
        self.tanh = nn.Tanh()
        self.softmax = nn.Softmax(dim=1)
        # Initialize vector V
        nn.init.uniform_(self.V, -1, 1)

    def forward(self, input, context, mask):
        # (batch, hidden_dim, seq_len)
        inp = self.input_linear(input).unsqueeze(2).expand(-1, -1, context.size(1))
        # (batch, hidden_dim, seq_len)
        context = context.permute(0, 2, 1)
        ctx = self.context_linear(context)
        # (batch, 1, hidden_dim)
        V = self.V.unsqueeze(0).expand(context.size(0), -1).unsqueeze(1)
        # (batch, seq_len)
        att = torch.bmm(V, self.tanh(inp + ctx)).squeeze(1)
        if len(att[mask]) > 0:
            att[mask] = self.inf[mask]
        alpha = self.softmax(att)
        hidden_state = torch.bmm(ctx, alpha.unsqueeze(2)).squeeze(2)
        return hidden_state, alpha

    def init_inf(self, mask_size):
        self.inf = self._inf.unsqueeze(1).expand(*mask_size)


class Decoder(nn.Module):
    def __init__(self, embedding_dim, hidden_dim):
        super(Decoder, self).__init__()
        self.embedding_dim = embedding_dim
        self.hidden_dim = hidden_dim
        self.input_to_hidden = nn.Linear(embedding_dim, 4 * hidden_dim)
        self.hidden_to_hidden = nn.Linear(hidden_dim, 4 * hidden_dim)
        self.hidden_out = nn.Linear(hidden_dim * 2, hidden_dim)
        self.att = Attention(hidden_dim, hidden_dim)
        # Used for propagating .cuda() command
        self.mask = Parameter(torch.ones(1), requires_grad=False)
        self.runner = Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, embedded_inputs, decoder_input, hidden, context):
        batch_size = embedded_inputs.size(0)
        input_length = embedded_inputs.size(1)
        # (batch, seq_len)
        mask = self.mask.repeat(input_length).unsqueeze(0).repeat(batch_size, 1)
        self.att.init_inf(mask.size())
        # Generating arang(input_length), broadcasted across batch_size
        runner = self.runner.repeat(input_length)
        for i in range(input_length):
            runner.data[i] = i
        runner = runner.unsqueeze(0).expand(batch_size, -1).long()
        outputs = []
        pointers = []

        def step(x, hidden):
            h, c = hidden
            gates = self.input_to_hidden(x) + self.hidden_to_hidden(h)
            input, forget, cell, out = gates.chunk(4, 1)
            input = torch.sigmoid(input)
            forget = torch.sigmoid(forget)
            cell = torch.tanh(cell)
            out = torch.sigmoid(out)
            c_t = (forget * c) + (input * cell)
            h_t = out * torch.tanh(c_t)
            # Attention section
            hidden_t, output = self.att(h_t, context, torch.eq(mask, 0))
            hidden_t = torch.tanh(self.hidden_out(torch.cat((hidden_t, h_t), 1)))
            return hidden_t, c_t, output

        # Recurrence loop
        for _ in range(input_length):
            h_t, c_t, outs = step(decoder_input, hidden)
            hidden = (h_t, c_t)
            # Masking selected inputs
            masked_outs = outs * mask
            # Get maximum probabilities and indices
            max_probs, indices = masked_outs.max(1)
            one_hot_pointers = (runner == indices.unsqueeze(1).expand(-1, outs.size()[1])).float()
            # Update mask to ignore seen indices
            mask = mask * (1 - one_hot_pointers)
            # Get embedded inputs by max indices
            embedding_mask = one_hot_pointers.unsqueeze(2).expand(-1, -1, self.embedding_dim).byte()
            decoder_input = embedded_inputs[embedding_mask.data.bool()].view(batch_size, self.embedding_dim)
            outputs.append(outs.unsqueeze(0))
            pointers.append(indices.unsqueeze(1))
        outputs = torch.cat(outputs).permute(1, 0, 2)
        pointers = torch.cat(pointers, 1)
        return (outputs, pointers), hidden


class PointerNet(nn.Module):
    def __init__(self, embedding_dim, hidden_dim, lstm_layers, dropout, bidir=False):
        super(PointerNet, self).__init__()
        self.embedding_dim = embedding_dim
        self.bidir = bidir
        self.embedding = nn.Linear(2, embedding_dim)
        self.encoder = Encoder(embedding_dim, hidden_dim, lstm_layers, dropout, bidir)
        self.decoder = Decoder(embedding_dim, hidden_dim)
        self.decoder_input0 = Parameter(torch.FloatTensor(embedding_dim), requires_grad=False)
        # Initialize decoder_input0
        nn.init.uniform_(self.decoder_input0, -1, 1)

    def forward(self, inputs):
        batch_size = inputs.size(0)
        input_length = inputs.size(1)
        decoder_input0 = self.decoder_input0.unsqueeze(0).expand(batch_size, -1)
        inputs = inputs.view(batch_size * input_length, -1)
        embedded_inputs = self.embedding(inputs).view(batch_size, input_length, -1)
        encoder_hidden0 = self.encoder.init_hidden(embedded_inputs)
        encoder_outputs, encoder_hidden = self.encoder(embedded_inputs, encoder_hidden0)
        if self.bidir:
            decoder_hidden0 = (torch.cat((encoder_hidden[0][-2:][0], encoder_hidden[0][-2:][1]), dim=-1),
                               torch.cat((encoder_hidden[1][-2:][0], encoder_hidden[1][-2:][1]), dim=-1))
        else:
            decoder_hidden0 = (encoder_hidden[0][-1], encoder_hidden[1][-1])
        (outputs, pointers), decoder_hidden = self.decoder(embedded_inputs, decoder_input0, decoder_hidden0, encoder_outputs)
        return outputs, pointers


def _convolve(w, s):
    """Circular convolution implementation."""
    assert s.size(0) == 3
    t = torch.cat([w[-1:], w, w[:1]])
    c = F.conv1d(t.view(1, 1, -1), s.view(1, 1, -1)).view(-1)
    return c


def _split_cols(mat, lengths):
    """Split a 2D matrix to variable length columns."""
    assert mat.size()[1] == sum(lengths), "Lengths must be summed to num columns"
    l = np.cumsum([0] + lengths)
    results = []
    for s, e in zip(l[:-1], l[1:]):
        results += [mat[:, s:e]]
    return results


class NTMMemory(nn.Module):
    """Memory bank for NTM."""

    def __init__(self, N, M):
        super(NTMMemory, self).__init__()
        self.N = N
        self.M = M
        # The memory bias allows the heads to learn how to initially address memory locations by content
        self.register_buffer('mem_bias', torch.Tensor(N, M))
        stdev = 1 / (np.sqrt(N + M))
        nn.init.uniform_(self.mem_bias, -stdev, stdev)

    def reset(self, batch_size):
        """Initialize memory from bias, for start-of-sequence."""
        self.batch_size = batch_size
        self.memory = self.mem_bias.clone().repeat(batch_size, 1, 1)

    def read(self, w):
        return torch.matmul(w.unsqueeze(1), self.memory).squeeze(1)

    def write(self, w, e, a):
        self.prev_mem = self.memory
        self.memory = torch.Tensor(self.batch_size, self.N, self.M)
        erase = torch.matmul(w.unsqueeze(-1), e.unsqueeze(1))
        add = torch.matmul(w.unsqueeze(-1), a.unsqueeze(1))
        self.memory = self.prev_mem * (1 - erase) + add

    def address(self, k, β, g, s, γ, w_prev):
        # Content focus
        wc = self._similarity(k, β)
        # Location focus
        wg = g * wc + (1 - g) * w_prev
        ŵ = self._shift(wg, s)
        w = ŵ ** γ
        return torch.div(w, torch.sum(w, dim=1).view(-1, 1) + 1e-16)

    def _similarity(self, k, β):
        k = k.view(self.batch_size, 1, -1)
        w = F.softmax(β * F.cosine_similarity(self.memory + 1e-16, k + 1e-16, dim=-1), dim=1)
        return w

    def _shift(self, wg, s):
        result = torch.zeros(wg.size())
        for b in range(self.batch_size):
            result[b] = _convolve(wg[b], s[b])
        return result


class NTM(nn.Module):
    def __init__(self, num_inputs=4, num_outputs=3, controller_size=12, N=6, M=5):
        super().__init__()
        self.memory, self.N, self.M = NTMMemory(N, M), N, M
        self.controller = nn.LSTMCell(num_inputs + M, controller_size)
        self.read_lengths, self.write_lengths = [M, 1, 1, 3, 1], [M, 1, 1, 3, 1, M, M]
        self.fc_read = nn.Linear(controller_size, sum(self.read_lengths))
        self.fc_write = nn.Linear(controller_size, sum(self.write_lengths))
        self.fc = nn.Linear(controller_size + M, num_outputs)
        for fc in (self.fc, self.fc_read, self.fc_write):
            nn.init.xavier_uniform_(fc.weight, gain=1.4)
            nn.init.normal_(fc.bias, std=0.01)
        self.register_buffer("read_bias", torch.randn(1, M) * 0.01)

    def _address_memory(self, k, β, g, s, γ, w_prev):
        k = k.clone()
        β = F.softplus(β)
        g = torch.sigmoid(g)
        s = F.softmax(s, dim=1)
        γ = 1 + F.softplus(γ)
        return self.memory.address(k, β, g, s, γ, w_prev)

    def forward(self, xs):
        b = xs.size(1)
        self.memory.reset(b)
        r = self.read_bias.clone().repeat(b, 1)
        wr = ww = torch.zeros(b, self.N)
        h, c = torch.zeros(b, 12), torch.zeros(b, 12)
        outs = []
        for x in xs:
            h, c = self.controller(torch.cat([x, r], dim=1), (h, c))
            k, β, g, s, γ, e, a = _split_cols(self.fc_write(h), self.write_lengths)
            ww = self._address_memory(k, β, g, s, γ, ww)
            self.memory.write(ww, torch.sigmoid(e), a)
            k, β, g, s, γ = _split_cols(self.fc_read(h), self.read_lengths)
            wr = self._address_memory(k, β, g, s, γ, wr)
            r = self.memory.read(wr)
            outs.append(torch.sigmoid(self.fc(torch.cat([h, r], dim=1))))
        return torch.stack(outs), ww


class MemN2N(nn.Module):
    def __init__(self, num_vocab=20, embedding_dim=8, sentence_size=5, max_hops=3):
        super(MemN2N, self).__init__()
        self.max_hops = max_hops
        for hop in range(self.max_hops + 1):
            C = nn.Embedding(num_vocab, embedding_dim, padding_idx=0)
            C.weight.data.normal_(0, 0.1)
            self.add_module("C_{}".format(hop), C)
        self.softmax = nn.Softmax(dim=1)
        self.encoding = nn.Parameter(torch.FloatTensor(self.position_encoding(sentence_size, embedding_dim)), requires_grad=False)

    def position_encoding(self, sentence_size, embedding_dim):
        encoding = np.ones((embedding_dim, sentence_size), dtype=np.float32)
        ls = sentence_size + 1
        le = embedding_dim + 1
        for i in range(1, le):
            for j in range(1, ls):
                encoding[i - 1, j - 1] = (i - (embedding_dim + 1) / 2) * (j - (sentence_size + 1) / 2)
        encoding = 1 + 4 * encoding / embedding_dim / sentence_size
        # Make position encoding of time words identity to avoid modifying them
        encoding[:, -1] = 1.0
        return np.transpose(encoding)

    def forward(self, story, query):
        story_size = story.size()
        u = list()
        query_embed = getattr(self, "C_0")(query)
        encoding = self.encoding.unsqueeze(0).expand_as(query_embed)
        u.append(torch.sum(query_embed * encoding, 1))
        for hop in range(self.max_hops):
            embed_A = getattr(self, f"C_{hop}")(story.view(story.size(0), -1))
            embed_A = embed_A.view(story_size + (embed_A.size(-1),))
            encoding = self.encoding.unsqueeze(0).unsqueeze(1).expand_as(embed_A)
            m_A = torch.sum(embed_A * encoding, 2)
            u_temp = u[-1].unsqueeze(1).expand_as(m_A)
            prob = self.softmax(torch.sum(m_A * u_temp, 2))
            embed_C = getattr(self, f"C_{hop + 1}")(story.view(story.size(0), -1))
            embed_C = embed_C.view(story_size + (embed_C.size(-1),))
            m_C = torch.sum(embed_C * encoding, 2)
            prob = prob.unsqueeze(2).expand_as(m_C)
            o_k = torch.sum(m_C * prob, 1)
            u.append(u[-1] + o_k)
        a_hat = u[-1] @ getattr(self, f"C_{self.max_hops}").weight.transpose(0, 1)
        return a_hat, self.softmax(a_hat)


def program():
    torch.manual_seed(0)
    model = PointerNet(6, 8, 1, 0.0, bidir=True)
    yield "initial pointers", model
    points, target = torch.rand(3, 5, 2), torch.stack([torch.randperm(5) for _ in range(3)])
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=0.01)
    CCE = torch.nn.CrossEntropyLoss()
    losses = []
    for _ in range(2):
        o, p = model(points)
        o = o.contiguous().view(-1, o.size()[-1])
        loss = CCE(o, target.view(-1))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        if len(losses) == 1:
            yield "pointers", [o, p]
            yield "pointer gradients", model
        optimizer.step()
    yield "losses", losses
    ntm = NTM()
    yield "initial ntm", ntm
    seq = torch.bernoulli(torch.full((4, 2, 4), 0.5))
    out, ww = ntm(seq)
    loss = nn.BCELoss()(out, seq[..., :3])
    loss.backward()
    for p in ntm.parameters():
        p.grad.data.clamp_(-10, 10)
    out_binarized = out.clone().data
    out_binarized.apply_(lambda x: 0 if x < 0.5 else 1)
    yield "ntm", [out, ww, loss, out_binarized]
    yield "ntm gradients", ntm
    memory = MemN2N()
    yield "initial memory", memory
    a_hat, answer = memory(torch.randint(0, 20, (3, 4, 5)), torch.randint(0, 20, (3, 5)))
    loss = nn.CrossEntropyLoss(reduction="sum")(a_hat, torch.tensor([1, 2, 3]))
    loss.backward()
    for p in memory.parameters():
        if p.grad is not None:
            # add noise to gradients, as in Neelakantan et al.
            p.grad.data.add_(torch.randn(p.size()) * 1e-3)
    yield "memory", [answer, loss]
    yield "memory gradients", memory
