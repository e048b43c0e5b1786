"""lightning: the tuner's learning rate and batch size, loggers of CSV and TensorBoard, callbacks of rates, averages and accumulation."""

import csv
import json
import logging
import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler, LearningRateMonitor, StochasticWeightAveraging
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.tuner import Tuner
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
x = torch.linspace(-1, 1, 96).reshape(32, 3)


class Fit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        self.lr, self.batch_size = 0.01, 2

    def train_dataloader(self):
        return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=self.batch_size)

    def training_step(self, batch, number):
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("train", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


found = {}
with tempfile.TemporaryDirectory() as folder:
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder, "enable_checkpointing": False}
    L.seed_everything(0, verbose=False)
    model = Fit()
    finder = Tuner(L.Trainer(max_epochs=3, logger=False, **quiet)).lr_find(model, num_training=20, early_stop_threshold=None)
    found["rates"], found["losses"] = finder.results["lr"], [float(v) for v in finder.results["loss"]]
    found["suggestion"] = finder.suggestion()
    found["batch size"] = Tuner(L.Trainer(max_epochs=1, logger=False, **quiet)).scale_batch_size(model, mode="power", max_trials=3, init_val=2)
    L.seed_everything(0, verbose=False)
    model, loggers = Fit(), [CSVLogger(folder, name="csv"), TensorBoardLogger(folder, name="board")]
    callbacks = [LearningRateMonitor(), StochasticWeightAveraging(0.05, swa_epoch_start=2), GradientAccumulationScheduler({1: 2})]
    trainer = L.Trainer(max_epochs=4, logger=loggers, callbacks=callbacks, log_every_n_steps=4, **quiet)
    trainer.fit(model)
    with open(Path(loggers[0].log_dir) / "metrics.csv") as file:
        rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
    found["csv"], found["board"] = rows, sorted(path.name.split(".")[0] for path in Path(loggers[1].log_dir).iterdir())
    found["weights"] = model.net[0].weight.flatten().tolist()
print(json.dumps(found))
