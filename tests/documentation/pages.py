"""Examples for names that programs often use and whose docstrings in PyTorch have none: of the kind that their pages would show."""

from __future__ import annotations

from tests.documentation.extract import Example

_X = "x = torch.arange(6.).reshape(2, 3)"
_LOSS = "input, target = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5)"
_LAYER = "input = torch.randn(2, 4, 3, 3)"
_MODEL = (
    "model = nn.Linear(3, 2); x, y = torch.randn(8, 3), torch.randn(8, 2); optimizer = torch.optim.{}(model.parameters(), lr=0.1)\n"
    "for _ in range(3):\n    optimizer.zero_grad()\n    loss = F.mse_loss(model(x), y)\n    loss.backward()\n    optimizer.step()\n"
    "loss\nmodel.weight\noptimizer\nsorted(optimizer.state_dict()['state'][0])"
)

# name -> the statements after `first`, separated by semicolons or lines
_TEXTS: dict[str, tuple[str, str]] = {
    "T": (_X, "x.T; x.T.shape"), "mT": (_X, "x[None].mT"), "view_as": (_X, "x.view_as(torch.empty(3, 2))"),
    "expand_as": (_X, "x[:1].expand_as(x)"), "clone": (_X, "y = x.clone(); y[0] = 7; x; y"), "contiguous": (_X, "x.t().contiguous(); "
        "x.t().is_contiguous()"),
    "getitem": (_X, "x[0]; x[:, 1]; x[..., -1]; x[[0, 1], [2, 0]]; x[x > 2]; x[None, 0, 1:]; x[5]; x[0, 'a']"),
    "radd": (_X, "1 + x; 1 - x; 2 * x; 6 / (x + 1); 2 ** x; 7 // (x + 1); 7 % (x + 1); [1, 2, 3] * x"),
    "float": ("x = torch.tensor([1.7, -2.2, 0.])", "x.half(); x.bfloat16(); x.double(); x.int(); x.long(); x.bool(); x.float() is x; "
        "x.to(torch.uint8).dtype"),
    "fill": (_X, "torch.fill(x, 3); x.fill_(2.5); x.zero_(); x.uniform_(); x.normal_(); x.bernoulli_(0.5); x.random_(10); x.exponential_()"),
    "index_add": (_X, "x.index_add(0, torch.tensor([1, 1]), torch.ones(2, 3)); x.index_add_(1, torch.tensor([0]), torch.ones(2, 1), alpha=2)"),
    "index_put": (_X, "x.index_put((torch.tensor([0]), torch.tensor([1])), torch.tensor(9.)); "
        "x.index_put_((torch.tensor([0, 0]),), torch.ones(3), accumulate=True)"),
    "masked_fill": (_X, "x.masked_fill(x > 2, -1); x.masked_fill_(torch.tensor([True, False, True]), 0.5); x.masked_fill(torch.tensor([1, 0, 1]), 0)"),
    "scatter": (_X, "index = torch.tensor([[0, 1, 0]]); torch.zeros(2, 3).scatter(0, index, x); torch.zeros(2, 3).scatter_(0, index, 1.5); "
        "torch.zeros(2, 3).scatter_add(0, index, x)"),
    "select": (_X, "x.select(1, 2); torch.select(x, 0, -1); x.select(0, 2)"), "sigmoid": (_X, "torch.sigmoid(x); x.sigmoid().dtype; "
        "torch.sigmoid(torch.tensor([1, 2]))"),
    "unique": ("x = torch.tensor([3, 1, 3, 2, 1])", "torch.unique(x); torch.unique(x, return_inverse=True, return_counts=True); "
        "x.reshape(1, 5).unique(dim=1)"),
    "rand_like": (_X, "torch.rand_like(x); torch.randn_like(x); torch.randn_like(x, dtype=torch.float64); torch.randint_like(x, 5)"),
    "stft": ("x = torch.sin(torch.arange(16.))", "torch.stft(x, 8, return_complex=True).shape; "
        "torch.stft(x, 8, window=torch.ones(8), return_complex=True)[:, 0]"),
    "functional.linear": (_X, "w, b = torch.randn(2, 3), torch.randn(2); F.linear(x, w, b); F.linear(x, w); F.linear(x, torch.randn(2, 4))"),
    "functional.relu": ("x = torch.tensor([-2., -0.5, 0., 0.5, 7.], requires_grad=True)", "F.relu(x); F.relu6(x); F.leaky_relu(x); "
        "F.elu(x); F.selu(x); F.gelu(x); "
                        "F.gelu(x, approximate='tanh'); F.silu(x); F.hardswish(x); F.softplus(x); F.logsigmoid(x); F.hardtanh(x); "
        "F.mish(x); F.glu(x[:4])"),
    "functional.dropout": (_X, "F.dropout(x, training=False); F.dropout(x, 1.0); F.dropout(x, 1.5)"),
    "functional.batch_norm": (_LAYER, "F.batch_norm(input, torch.zeros(4), torch.ones(4))[0, 0]; F.batch_norm(input, None, None, training=True)[0, 0]; "
                              "F.instance_norm(input)[0, 0]; F.group_norm(input, 2)[0, 0]; F.layer_norm(input, (3, 3))[0, 0]; "
        "F.rms_norm(input, (3,))[0, 0]"),
    "functional.max_pool2d": (_LAYER, "F.max_pool2d(input, 2)[0]; F.max_pool2d(input, 3, stride=1, padding=1, return_indices=True)[1][0, 0]; "
                              "F.avg_pool2d(input, 2)[0]; F.adaptive_avg_pool2d(input, 1)[0]; F.max_pool2d(input, 5)"),
    "functional.interpolate": (_LAYER, "F.interpolate(input, scale_factor=2)[0, 0]; "
        "F.interpolate(input, size=(2, 4), mode='bilinear', align_corners=False)[0, 0]; "
                               "F.interpolate(input, size=5, mode='area')[0, 0]"),
    "functional.grid_sample": (_LAYER, "theta = torch.tensor([[[1., 0., 0.2], [0., 1., 0.]]]); "
        "grid = F.affine_grid(theta, (1, 4, 2, 2), align_corners=False); grid; "
                               "F.grid_sample(input[:1], grid, align_corners=False)[0, 0]"),
    "functional.mse_loss": (_LOSS, "F.mse_loss(input, target); F.l1_loss(input, target); F.smooth_l1_loss(input, target); "
        "F.huber_loss(input, target, delta=0.5); "
                            "F.mse_loss(input, target, reduction='none'); F.mse_loss(input, target, reduction='sum'); F.mse_loss(input, target[:, :2])"),
    "functional.kl_div": (_LOSS, "F.kl_div(input.log_softmax(1), target.softmax(1), reduction='batchmean'); "
                          "F.triplet_margin_loss(input, target, target.flip(0)); F.cosine_similarity(input, target)"),
    **{f"optim.{name}": ("torch.manual_seed(1)", _MODEL.format(name)) for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad")},
}  # fmt: skip


def _page(name: str, first: str, rest: str) -> Example:
    separator = "\n" if "\n" in rest else "; "
    pieces, statements = [first, *rest.split(separator)], []
    for piece in pieces:
        if piece.startswith("    ") and statements:
            statements[-1] += "\n" + piece
        else:
            statements.append(piece)
    return Example(f"page.{name}", [statements])


PAGES = [_page(name, first, rest) for name, (first, rest) in _TEXTS.items()]
