"""Every layer against PyTorch's: repr, state_dict keys, initial values for the same seed, signatures."""

from __future__ import annotations

import inspect
import warnings

import pytest

import flambeau
from tests.nn.oracle import torch

CASES = """
Linear(3, 4); Linear(3, 4, bias=False); Bilinear(3, 4, 5); Identity(3); Conv1d(4, 6, 3)
Conv2d(4, 6, 3, stride=2, padding=1, groups=2); Conv2d(4, 6, (3, 2), padding='same', dilation=2, bias=False, padding_mode='reflect')
Conv3d(4, 6, 3); ConvTranspose1d(4, 6, 3, 2, output_padding=1); ConvTranspose2d(4, 6, 3); ConvTranspose3d(4, 6, 3)
BatchNorm1d(4); BatchNorm2d(4, affine=False); BatchNorm3d(4, track_running_stats=False); BatchNorm1d(4, bias=False)
InstanceNorm1d(4); InstanceNorm2d(4, affine=True, track_running_stats=True); SyncBatchNorm(3)
LayerNorm(4); LayerNorm((3, 4), elementwise_affine=False); LayerNorm(4, bias=False); GroupNorm(2, 4)
RMSNorm(4); RMSNorm((3, 4), eps=1e-3); LocalResponseNorm(2)
Embedding(5, 3); Embedding(5, 3, padding_idx=-1, max_norm=1.0); EmbeddingBag(5, 3, mode='sum', padding_idx=2)
Dropout(0.2); Dropout1d(); Dropout2d(); Dropout3d(); AlphaDropout(); FeatureAlphaDropout(); Flatten(); Unflatten(1, (2, 3))
MaxPool1d(2); MaxPool2d(3, 2, 1, ceil_mode=True); MaxPool3d(2); AvgPool1d(2); AvgPool2d(2, 3); AvgPool3d(2); LPPool1d(2, 3)
LPPool2d(2.0, 3); AdaptiveAvgPool1d(3); AdaptiveAvgPool2d((3, None)); AdaptiveMaxPool2d(3); MaxUnpool2d(2)
Upsample(scale_factor=2); Upsample(size=(3, 4), mode='bilinear'); UpsamplingNearest2d(scale_factor=2)
UpsamplingBilinear2d(size=(3, 3)); ZeroPad2d(1); ConstantPad1d((1, 2), 3.5); ReflectionPad2d(1); ReplicationPad3d(1)
CircularPad1d(2); PixelShuffle(2); PixelUnshuffle(2); ChannelShuffle(2); Unfold(3); Fold((4, 4), 2)
ReLU(); ReLU(True); ReLU6(); ELU(); CELU(0.3, True); SELU(); SiLU(); Mish(); GELU(); GELU('tanh'); Hardswish(); Hardsigmoid()
Hardtanh(-2, 2.0); LeakyReLU(0.2); Softplus(); Hardshrink(); Softshrink(0.3); Threshold(0.1, 20); RReLU(); Sigmoid(); Tanh()
LogSigmoid(); Softsign(); Tanhshrink(); GLU(); PReLU(3); Softmax(); Softmax(1); LogSoftmax(-1); Softmin(1); Softmax2d()
MultiheadAttention(8, 2); MultiheadAttention(8, 2, kdim=4, vdim=5, add_bias_kv=True, bias=False)
TransformerEncoderLayer(8, 2, 16); TransformerDecoderLayer(8, 2, 16, norm_first=True, activation='gelu')
Transformer(8, 2, 2, 2, 16); TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
LSTM(3, 4); LSTM(3, 4, 2, bidirectional=True, proj_size=2, batch_first=True); GRU(3, 4, 2, dropout=0.1, bias=False)
RNN(3, 4, 1, 'relu'); RNN(3, 4, nonlinearity='tanh', bidirectional=True); LSTMCell(3, 4); GRUCell(3, 4, bias=False); RNNCell(3, 4)
CosineSimilarity(); PairwiseDistance(); MSELoss(); L1Loss(reduction='sum'); CrossEntropyLoss(label_smoothing=0.1); NLLLoss()
BCELoss(); BCEWithLogitsLoss(); KLDivLoss(); SmoothL1Loss(); HuberLoss(); SoftMarginLoss(); MultiLabelMarginLoss()
MultiLabelSoftMarginLoss(); HingeEmbeddingLoss(); CosineEmbeddingLoss(); MarginRankingLoss(); MultiMarginLoss()
TripletMarginLoss(); TripletMarginWithDistanceLoss(); CTCLoss(); PoissonNLLLoss(); GaussianNLLLoss()
Sequential(nn.Linear(2, 3), nn.ReLU()); ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU()]); Sequential(); ModuleList()
ModuleDict({'a': nn.Linear(2, 3)}); ModuleDict(); ParameterList([torch.zeros(2, 3), torch.ones(1)])
ParameterDict({'b': torch.zeros(2), 'a': torch.ones(3, 1)})
"""
EXPRESSIONS = [part.strip() for part in CASES.replace("\n", ";").split(";") if part.strip()]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_layer(expression):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(3)
        theirs = eval("nn." + expression, {"nn": torch.nn, "torch": torch})
        flambeau.manual_seed(3)
        mine = eval("nn." + expression, {"nn": flambeau.nn, "torch": flambeau})
    assert repr(mine) == repr(theirs)
    a, b = mine.state_dict(), theirs.state_dict()
    assert list(a) == list(b)
    assert a._metadata == b._metadata
    for key in a:
        got, expected = torch.tensor(a[key].tolist()), b[key]
        assert tuple(a[key].shape) == tuple(expected.shape)
        torch.testing.assert_close(got.to(expected.dtype), expected, rtol=3e-7, atol=3e-7)
    assert [name for name, _ in mine.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    ours_signature = list(inspect.signature(type(mine).__init__).parameters)
    assert ours_signature[: len(inspect.signature(type(theirs).__init__).parameters)] == list(inspect.signature(type(theirs).__init__).parameters)
