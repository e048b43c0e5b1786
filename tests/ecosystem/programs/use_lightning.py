"""lightning: fit with a checkpoint and early stopping, resume, validate and predict."""

import json
import logging
import tempfile
import warnings

import lightning as L
import torch
import warm
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Fit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def training_step(self, batch, number):
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("train", loss)
        return loss

    def validation_step(self, batch, number):
        self.log("val", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def predict_step(self, batch, number):
        return self.net(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


L.seed_everything(0, verbose=False)
x = torch.randn(32, 3)
data = TensorDataset(x, x.sum(1, keepdim=True))
found = {}
with tempfile.TemporaryDirectory() as folder:
    options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder}
    best = ModelCheckpoint(dirpath=folder, monitor="val", save_last=True)
    model = Fit()
    trainer = L.Trainer(max_epochs=3, callbacks=[best, EarlyStopping("val")], **options)
    trainer.fit(model, DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8))
    found["fit"] = [trainer.callback_metrics["train"].item(), trainer.callback_metrics["val"].item()]
    again = Fit()
    trainer = L.Trainer(max_epochs=4, **options)
    trainer.fit(again, DataLoader(data, batch_size=8), DataLoader(data, batch_size=8), ckpt_path=best.last_model_path, weights_only=False)
    found["resumed"] = [trainer.callback_metrics["val"].item(), trainer.current_epoch, trainer.global_step]
    found["predicted"] = torch.cat(trainer.predict(again, DataLoader(data, batch_size=8)))[:4].flatten().tolist()
print(json.dumps(found))
with tempfile.TemporaryDirectory() as folder:
    options["default_root_dir"] = folder
    warm.measure("fit: an epoch of 4 steps", lambda: L.Trainer(max_epochs=1, enable_checkpointing=False, **options).fit(again, DataLoader(data, batch_size=8)))
