"""PyTorch's documentation examples print the same with flambeau: those of the names that most programs use, and a sample of the others.

`python -m tests.documentation.sweep` runs all of them.
"""

from __future__ import annotations

import zlib

import pytest

pytest.importorskip("torch")

from tests.documentation.compare import compare
from tests.documentation.execute import run_apart, run_here
from tests.documentation.extract import Example, examples
from tests.documentation.known import reason
from tests.documentation.pages import PAGES

OFTEN = set(
    "abs all amax amin any arange argmax argsort bincount bmm broadcast_to cat cdist chunk clamp cumsum diag diagonal einsum eye flatten flip full gather "
    "index_add index_select isclose isfinite linspace logsumexp masked_select matmul max maximum mean median meshgrid min mm nan_to_num narrow nonzero norm "
    "outer pow prod rand randint randn randperm remainder repeat_interleave reshape roll round scatter searchsorted softmax sort split squeeze stack std sum "
    "take_along_dim tensor tile topk transpose tril triu unbind unique unsqueeze var vstack where zeros "
    "linalg.cholesky linalg.det linalg.eigh linalg.inv linalg.norm linalg.qr linalg.svd linalg.vector_norm fft.fft fft.rfft stft "
    "nn.BatchNorm2d nn.BCEWithLogitsLoss nn.Conv1d nn.ConvTranspose2d nn.CrossEntropyLoss nn.Dropout nn.Embedding nn.Flatten nn.GELU nn.GRU nn.LSTM "
    "nn.LayerNorm nn.Linear nn.MSELoss nn.MaxPool2d nn.Module.apply nn.Module.state_dict nn.NLLLoss nn.ReLU nn.Sequential nn.Softmax nn.Upsample "
    "nn.init.kaiming_normal_ nn.utils.rnn.pack_padded_sequence nn.utils.rnn.pad_sequence optim.lr_scheduler.StepLR optim.lr_scheduler.OneCycleLR "
    "Tensor.expand Tensor.item Tensor.permute Tensor.view Tensor.to Tensor.backward autograd.grad no_grad func.grad func.vmap vmap utils.data.random_split "
    "distributions.Normal distributions.Categorical testing.assert_close Generator.manual_seed Size".split()
)
SHARE = 12  # of the other names, one of so many


def chosen() -> list[Example]:
    """Names that are often used, and the others by a hash of their name, which stays the same from run to run."""
    short = [(e, e.name.removeprefix("torch.")) for e in examples() if reason(e.name, "") is None]
    return [e for e, name in short if name in OFTEN or zlib.crc32(name.encode()) % SHARE == 0]


@pytest.fixture(scope="module")
def reports() -> dict[str, list[str]]:
    """{name: its differences}, of examples that PyTorch runs at least in part."""
    sample = [*chosen(), *PAGES]
    found: dict[str, list[str]] = {}
    cannot = 0
    for example, theirs, mine in zip(sample, run_here(sample), run_apart(sample), strict=True):
        report = compare(example, theirs, mine)
        cannot += report.skipped
        if report.compared:
            found[example.name] = [
                f">>> {d.source}\n--- PyTorch\n{d.theirs}\n--- flambeau\n{d.mine}" for d in report.differences if reason(d.name, d.source) is None
            ]
    print(f"{len(sample)} examples, {len(found)} that PyTorch runs; {cannot} statements that it cannot run as they are written")
    return found


def test_examples_print_the_same(reports: dict[str, list[str]]) -> None:
    assert len(reports) > 150
    wrong = {name: texts for name, texts in reports.items() if texts}
    assert not wrong, "\n".join(f"=== {name}\n" + "\n".join(texts) for name, texts in wrong.items())


@pytest.mark.parametrize("page", [p.name for p in PAGES])
def test_page_runs(reports: dict[str, list[str]], page: str) -> None:
    assert page in reports, "PyTorch cannot run the example that this folder has for the name"
