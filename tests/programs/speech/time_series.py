"""Time series: TCN (locuslab, with weight_norm and Chomp1d), N-BEATS with its bases, a transformer forecaster with causal convolutions, DLinear's moving average, Informer's distilling."""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import weight_norm


class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super(Chomp1d, self).__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, :-self.chomp_size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, kernel_size, stride, dilation, padding, dropout=0.2):
        super(TemporalBlock, self).__init__()
        self.conv1 = weight_norm(nn.Conv1d(n_inputs, n_outputs, kernel_size, stride=stride, padding=padding, dilation=dilation))
        self.chomp1 = Chomp1d(padding)
        self.relu1 = nn.ReLU()
        self.dropout1 = nn.Dropout(dropout)

        self.conv2 = weight_norm(nn.Conv1d(n_outputs, n_outputs, kernel_size, stride=stride, padding=padding, dilation=dilation))
        self.chomp2 = Chomp1d(padding)
        self.relu2 = nn.ReLU()
        self.dropout2 = nn.Dropout(dropout)

        self.net = nn.Sequential(self.conv1, self.chomp1, self.relu1, self.dropout1,
                                 self.conv2, self.chomp2, self.relu2, self.dropout2)
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None
        self.relu = nn.ReLU()
        self.init_weights()

    def init_weights(self):
        self.conv1.weight.data.normal_(0, 0.01)
        self.conv2.weight.data.normal_(0, 0.01)
        if self.downsample is not None:
            self.downsample.weight.data.normal_(0, 0.01)

    def forward(self, x):
        out = self.net(x)
        res = x if self.downsample is None else self.downsample(x)
        return self.relu(out + res)


class TemporalConvNet(nn.Module):
    def __init__(self, num_inputs, num_channels, kernel_size=2, dropout=0.2):
        super(TemporalConvNet, self).__init__()
        layers = []
        num_levels = len(num_channels)
        for i in range(num_levels):
            dilation_size = 2 ** i
            in_channels = num_inputs if i == 0 else num_channels[i-1]
            out_channels = num_channels[i]
            layers += [TemporalBlock(in_channels, out_channels, kernel_size, stride=1, dilation=dilation_size,
                                     padding=(kernel_size-1) * dilation_size, dropout=dropout)]
        self.network = nn.Sequential(*layers)

    def forward(self, x):
        return self.network(x)


class TCN(nn.Module):
    def __init__(self, input_size, output_size, num_channels, kernel_size, dropout):
        super(TCN, self).__init__()
        self.tcn = TemporalConvNet(input_size, num_channels, kernel_size=kernel_size, dropout=dropout)
        self.linear = nn.Linear(num_channels[-1], output_size)

    def forward(self, inputs):
        """Inputs have to have dimension (N, C_in, L_in)"""
        y1 = self.tcn(inputs)
        return F.log_softmax(self.linear(y1[:, :, -1]), dim=1)


def seasonality_model(thetas, t):
    p = thetas.size()[-1]
    assert p <= thetas.shape[1], 'thetas_dim is too big.'
    p1, p2 = (p // 2, p // 2) if p % 2 == 0 else (p // 2, p // 2 + 1)
    s1 = torch.tensor(np.array([np.cos(2 * np.pi * i * t) for i in range(p1)])).float()  # H/2-1
    s2 = torch.tensor(np.array([np.sin(2 * np.pi * i * t) for i in range(p2)])).float()
    S = torch.cat([s1, s2])
    return thetas.mm(S)


def trend_model(thetas, t):
    p = thetas.size()[-1]
    assert p <= 4, 'thetas_dim is too big.'
    T = torch.tensor(np.array([t ** i for i in range(p)])).float()
    return thetas.mm(T)


def linear_space(backcast_length, forecast_length, is_forecast=True):
    horizon = forecast_length if is_forecast else backcast_length
    return np.arange(0, horizon) / horizon


class Block(nn.Module):
    def __init__(self, units, thetas_dim, backcast_length=10, forecast_length=5, share_thetas=False):
        super(Block, self).__init__()
        self.units, self.thetas_dim, self.share_thetas = units, thetas_dim, share_thetas
        self.fc1 = nn.Linear(backcast_length, units)
        self.fc2 = nn.Linear(units, units)
        self.backcast_linspace = linear_space(backcast_length, forecast_length, is_forecast=False)
        self.forecast_linspace = linear_space(backcast_length, forecast_length, is_forecast=True)
        if share_thetas:
            self.theta_f_fc = self.theta_b_fc = nn.Linear(units, thetas_dim, bias=False)
        else:
            self.theta_b_fc = nn.Linear(units, thetas_dim, bias=False)
            self.theta_f_fc = nn.Linear(units, thetas_dim, bias=False)

    def forward(self, x):
        x = x.reshape(x.shape[0], -1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return x

    def __str__(self):
        block_type = type(self).__name__
        return f'{block_type}(units={self.units}, thetas_dim={self.thetas_dim}, share_thetas={self.share_thetas}) at @'


class SeasonalityBlock(Block):
    def forward(self, x):
        x = super(SeasonalityBlock, self).forward(x)
        return seasonality_model(self.theta_b_fc(x), self.backcast_linspace), seasonality_model(self.theta_f_fc(x), self.forecast_linspace)


class TrendBlock(Block):
    def __init__(self, units, thetas_dim, backcast_length=10, forecast_length=5):
        super(TrendBlock, self).__init__(units, thetas_dim, backcast_length, forecast_length, share_thetas=True)

    def forward(self, x):
        x = super(TrendBlock, self).forward(x)
        return trend_model(self.theta_b_fc(x), self.backcast_linspace), trend_model(self.theta_f_fc(x), self.forecast_linspace)


class GenericBlock(Block):
    def __init__(self, units, thetas_dim, backcast_length=10, forecast_length=5):
        super(GenericBlock, self).__init__(units, thetas_dim, backcast_length, forecast_length)
        self.backcast_fc = nn.Linear(thetas_dim, backcast_length)
        self.forecast_fc = nn.Linear(thetas_dim, forecast_length)

    def forward(self, x):
        x = super(GenericBlock, self).forward(x)
        return self.backcast_fc(self.theta_b_fc(x)), self.forecast_fc(self.theta_f_fc(x))


class NBeatsNet(nn.Module):
    def __init__(self, units=12, backcast_length=10, forecast_length=5):
        super().__init__()
        self.forecast_length = forecast_length
        self.stacks, self.parameters_list = [], []
        for cls, dim in ((TrendBlock, 2), (SeasonalityBlock, 4), (GenericBlock, 4)):
            blocks = [cls(units, dim, backcast_length, forecast_length)]
            self.parameters_list.extend(blocks[0].parameters())
            self.stacks.append(blocks)
        self.parameters_list = nn.ParameterList(self.parameters_list)

    def forward(self, backcast):
        forecast = torch.zeros(size=(backcast.size()[0], self.forecast_length,))
        for stack in self.stacks:
            for block in stack:
                b, f = block(backcast)
                backcast = backcast - b
                forecast = forecast + f
        return backcast, forecast


class moving_avg(nn.Module):
    """Moving average block to highlight the trend of time series"""
    def __init__(self, kernel_size, stride):
        super(moving_avg, self).__init__()
        self.kernel_size = kernel_size
        self.avg = nn.AvgPool1d(kernel_size=kernel_size, stride=stride, padding=0)

    def forward(self, x):
        # padding on the both ends of time series
        front = x[:, 0:1, :].repeat(1, (self.kernel_size - 1) // 2, 1)
        end = x[:, -1:, :].repeat(1, (self.kernel_size - 1) // 2, 1)
        x = torch.cat([front, x, end], dim=1)
        x = self.avg(x.permute(0, 2, 1))
        return x.permute(0, 2, 1)


class DLinear(nn.Module):
    def __init__(self, seq_len, pred_len, channels):
        super().__init__()
        self.decomposition = moving_avg(5, stride=1)
        self.pred_len = pred_len
        self.Linear_Seasonal = nn.ModuleList([nn.Linear(seq_len, pred_len) for _ in range(channels)])
        self.Linear_Trend = nn.Linear(seq_len, pred_len)
        self.Linear_Trend.weight = nn.Parameter((1/seq_len)*torch.ones([pred_len, seq_len]))

    def forward(self, x):
        means = x.mean(1, keepdim=True).detach()
        x = x - means
        stdev = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + 1e-5)
        x /= stdev
        trend_init = self.decomposition(x)
        seasonal_init = (x - trend_init).permute(0, 2, 1)
        seasonal_output = torch.zeros([seasonal_init.size(0), seasonal_init.size(1), self.pred_len], dtype=seasonal_init.dtype)
        for i in range(len(self.Linear_Seasonal)):
            seasonal_output[:, i, :] = self.Linear_Seasonal[i](seasonal_init[:, i, :])
        out = (seasonal_output + self.Linear_Trend(trend_init.permute(0, 2, 1))).permute(0, 2, 1)
        return out * (stdev[:, 0, :].unsqueeze(1).repeat(1, self.pred_len, 1)) + means


class TokenEmbedding(nn.Module):
    def __init__(self, c_in, d_model):
        super(TokenEmbedding, self).__init__()
        padding = 1 if torch.__version__ >= '1.5.0' else 2
        self.tokenConv = nn.Conv1d(in_channels=c_in, out_channels=d_model, kernel_size=3, padding=1 if padding else 2, padding_mode='circular')
        for m in self.modules():
            if isinstance(m, nn.Conv1d):
                nn.init.kaiming_normal_(m.weight, mode='fan_in', nonlinearity='leaky_relu')

    def forward(self, x):
        return self.tokenConv(x.permute(0, 2, 1)).transpose(1, 2)


class TransformerForecaster(nn.Module):
    def __init__(self, c_in=3, d_model=12, pred_len=5):
        super().__init__()
        self.emb, self.dec_emb = TokenEmbedding(c_in, d_model), TokenEmbedding(c_in, d_model)
        self.transformer = nn.Transformer(d_model, 3, 1, 1, 20, dropout=0.0, activation=F.gelu, batch_first=True, norm_first=True)
        self.downConv = nn.Conv1d(d_model, d_model, 3, padding=2, padding_mode='circular')
        self.norm = nn.BatchNorm1d(d_model)
        self.maxPool = nn.MaxPool1d(kernel_size=3, stride=2, padding=1)
        self.projection = nn.Linear(d_model, c_in, bias=True)
        self.pred_len = pred_len

    def forward(self, x):
        memory = self.emb(x)
        memory = self.maxPool(F.elu(self.norm(self.downConv(memory.permute(0, 2, 1))))).transpose(1, 2)
        dec_inp = torch.zeros_like(x[:, -self.pred_len:, :]).float()
        dec_inp = torch.cat([x[:, -4:, :], dec_inp], dim=1)
        tgt_mask = nn.Transformer.generate_square_subsequent_mask(dec_inp.size(1))
        out = self.transformer(memory, self.dec_emb(dec_inp), tgt_mask=tgt_mask, tgt_is_causal=True)
        return self.projection(out)[:, -self.pred_len:, :]


def program():
    torch.manual_seed(1111)
    model = TCN(2, 4, [6, 6], 3, 0.1)
    yield "tcn", model  # weight_g is a norm
    x, y = torch.randn(5, 2, 14), torch.randint(0, 4, (5,))
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        if not losses:
            yield "tcn gradients", {n: p.grad for n, p in model.named_parameters()}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    yield "tcn losses", losses
    net = NBeatsNet()
    print([str(b) for stack in net.stacks for b in stack])
    yield "initial n-beats", net
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    series = torch.sin(torch.arange(15) * 0.8 + torch.arange(4)[:, None])
    for _ in range(2):
        backcast, forecast = net(series[:, :10].clone())
        loss = F.mse_loss(forecast, series[:, 10:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    yield "n-beats", [backcast, forecast]
    data = torch.randn(3, 15, 3).cumsum(1)
    for model in (DLinear(10, 5, 3), TransformerForecaster()):
        name = type(model).__name__
        yield f"initial {name}", model
        out = model(data[:, :10].clone())
        loss = F.huber_loss(out, data[:, 10:], delta=0.5)
        loss.backward()
        losses.append(loss.item())
        yield name, out
        yield f"{name} gradients", model
    yield "losses", losses
    print(math.isnan(sum(losses)))
