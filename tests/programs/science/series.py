"""Time series, anomalies and filters: pytorch/examples' sine waves by LSTMCells and L-BFGS, Deep SVDD, an autoencoder, a learnt Kalman filter."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class Sequence(nn.Module):
    """pytorch/examples/time_sequence_prediction."""

    def __init__(self):
        super(Sequence, self).__init__()
        self.lstm1 = nn.LSTMCell(1, 11)
        self.lstm2 = nn.LSTMCell(11, 11)
        self.linear = nn.Linear(11, 1)

    def forward(self, input, future = 0):
        outputs = []
        h_t = torch.zeros(input.size(0), 11, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 11, dtype=torch.double)
        h_t2 = torch.zeros(input.size(0), 11, dtype=torch.double)
        c_t2 = torch.zeros(input.size(0), 11, dtype=torch.double)

        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for i in range(future):# if we should predict the future
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        outputs = torch.cat(outputs, dim=1)
        return outputs


def waves():
    np.random.seed(0)
    torch.manual_seed(0)
    T, L, N = 20, 10, 6
    x = np.empty((N, L), 'int64')
    x[:] = np.array(range(L)) + np.random.randint(-4 * T, 4 * T, N).reshape(N, 1)
    data = np.sin(x / 1.0 / T).astype('float64')
    input = torch.from_numpy(data[3:, :-1])
    target = torch.from_numpy(data[3:, 1:])
    test_input = torch.from_numpy(data[:3, :-1])
    # build the model
    seq = Sequence()
    seq.double()
    yield "initial", seq
    criterion = nn.MSELoss()
    # use LBFGS as optimizer since we can load the whole data to train
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=4)
    for i in range(2):
        print('STEP: ', i)
        def closure():
            optimizer.zero_grad()
            out = seq(input)
            loss = criterion(out, target)
            print('loss:', loss.item())
            loss.backward()
            return loss
        optimizer.step(closure)
        # begin to predict, no need to track gradient here
        with torch.no_grad():
            pred = seq(test_input, future=3)
            loss = criterion(pred[:, :-3], torch.from_numpy(data[:3, 1:]))
            print('test loss:', loss.item())
    yield "prediction", pred.detach().numpy()


class AutoEncoder(nn.Module):
    """MorvanZhou's tutorial, tied to Deep SVDD's network without biases."""

    def __init__(self):
        super(AutoEncoder, self).__init__()

        self.encoder = nn.Sequential(
            nn.Linear(16, 12, bias=False),
            nn.Tanh(),
            nn.Linear(12, 3, bias=False),
        )
        self.decoder = nn.Sequential(
            nn.Linear(3, 12),
            nn.Tanh(),
            nn.Linear(12, 16),
            nn.Sigmoid(),       # compress to a range (0, 1)
        )

    def forward(self, x):
        encoded = self.encoder(x)
        decoded = self.decoder(encoded)
        return encoded, decoded


def svdd():
    auto = AutoEncoder()
    optimizer = torch.optim.Adam(auto.parameters(), lr=0.005)
    loader = torch.utils.data.DataLoader(dataset=torch.utils.data.TensorDataset(torch.rand(20, 16)), batch_size=8, shuffle=True)
    for epoch in range(2):
        for step, (x,) in enumerate(loader):
            encoded, decoded = auto(x.view(-1, 16))
            loss = nn.MSELoss()(decoded, x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print('Epoch: ', epoch, '| train loss: %.4f' % loss.data.numpy())

    # Ruff et al., 2018: centre from the data, soft boundary with a radius from a quantile
    c = torch.zeros(3)
    with torch.no_grad():
        n_samples = 0
        for (x,) in loader:
            outputs = auto.encoder(x)
            n_samples += outputs.shape[0]
            c += torch.sum(outputs, dim=0)
    c /= n_samples
    # If c_i is too close to 0, set to +-eps. Reason: a zero unit can be trivially matched with zero weights.
    eps = 0.1
    c[(abs(c) < eps) & (c < 0)] = -eps
    c[(abs(c) < eps) & (c > 0)] = eps
    R, nu = torch.tensor(0.0), 0.1
    optimizer = optim.Adam(auto.encoder.parameters(), lr=1e-3, weight_decay=1e-6, amsgrad=True)
    scheduler = optim.lr_scheduler.MultiStepLR(optimizer, milestones=(1,), gamma=0.1)
    for epoch in range(2):
        for (x,) in loader:
            optimizer.zero_grad()
            dist = torch.sum((auto.encoder(x) - c) ** 2, dim=1)
            scores = dist - R ** 2
            loss = R ** 2 + (1 / nu) * torch.mean(torch.max(torch.zeros_like(scores), scores))
            loss.backward()
            optimizer.step()
            R.data = torch.tensor(np.quantile(np.sqrt(dist.clone().data.cpu().numpy()), 1 - nu), dtype=torch.float32)
        scheduler.step()
        print("svdd %.6f R %.4f lr %g" % (loss.item(), R, scheduler.get_last_lr()[0]))
    yield "centre", [c, R]


class KalmanFilter(nn.Module):
    """A linear-Gaussian state-space model whose transition and noises are learnt from the likelihood."""

    def __init__(self, state=2, obs=1):
        super().__init__()
        self.A = nn.Parameter(torch.eye(state) + 0.1 * torch.randn(state, state))
        self.H = nn.Parameter(torch.randn(obs, state))
        self.log_q = nn.Parameter(torch.zeros(state))
        self.log_r = nn.Parameter(torch.zeros(obs))

    def forward(self, ys):
        n = self.A.shape[0]
        mean, cov = torch.zeros(n), torch.eye(n)
        ll, means = 0.0, []
        for y in ys:
            mean = self.A @ mean
            cov = self.A @ cov @ self.A.T + torch.diag(self.log_q.exp())
            S = self.H @ cov @ self.H.T + torch.diag(self.log_r.exp())
            residual = y - self.H @ mean
            ll = ll - 0.5 * (residual @ torch.linalg.solve(S, residual) + torch.logdet(S) + np.log(2 * np.pi) * len(y))
            K = torch.linalg.solve(S, self.H @ cov).T
            mean = mean + K @ residual
            cov = (torch.eye(n) - K @ self.H) @ cov
            means.append(mean)
        return ll, torch.stack(means)


def kalman():
    kf = KalmanFilter()
    ys = torch.cumsum(torch.randn(6, 1), 0)
    optimizer = optim.Adam(kf.parameters(), lr=0.05)
    for step in range(2):
        optimizer.zero_grad()
        ll, means = kf(ys)
        (-ll).backward()
        optimizer.step()
        print("log-likelihood %.4f" % ll)
    yield "filter", [kf, means]


def program():
    yield from waves()
    yield from svdd()
    yield from kalman()
