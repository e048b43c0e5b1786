"""lightning: two ranks by the strategy "ddp": fit with batch norm, logged means over the ranks, and validate."""

import json
import logging
import os
import tempfile
import warnings

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Fit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 8, bias=False), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def training_step(self, batch, number):
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("train", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, number):
        self.log("val", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
L.seed_everything(0, verbose=False)
x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
data = TensorDataset(x, x.sum(1, keepdim=True))
with tempfile.TemporaryDirectory() as folder:
    model = Fit()
    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder}
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", devices=2, strategy="ddp", **options)
    trainer.fit(model, DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8))
    metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
    trainer.validate(model, DataLoader(data, batch_size=8), verbose=False)
    if trainer.is_global_zero:
        metrics |= {"steps": trainer.global_step, "validated": trainer.callback_metrics["val"].item()}
        print(json.dumps(metrics | {"weights": [p.flatten()[:3].tolist() for p in model.parameters()]}))
