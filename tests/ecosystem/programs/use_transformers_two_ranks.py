"""transformers: Trainer on two ranks: a small GPT-2, accumulated gradients, evaluation and a checkpoint that training goes on from."""

import json
import os
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

warnings.simplefilter("ignore")
transformers.utils.logging.set_verbosity_error()
if "RANK" not in os.environ:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__, folder]
        sys.exit(subprocess.run(command, check=False).returncode)


class Numbers(torch.utils.data.Dataset):
    def __init__(self):
        self.data = torch.randint(0, 50, (64, 16), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return {"input_ids": self.data[i], "labels": self.data[i]}


def trainer(epochs):
    set_seed(0)
    config = GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=50, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    options = TrainingArguments(
        output_dir=sys.argv[1], per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=epochs, logging_steps=1, report_to=[],
        use_cpu=True, disable_tqdm=True, save_strategy="epoch", eval_strategy="epoch", ddp_backend="gloo", dataloader_pin_memory=False, learning_rate=1e-3,
        lr_scheduler_type="constant",
    )  # fmt: skip
    return Trainer(model=GPT2LMHeadModel(config), args=options, train_dataset=Numbers(), eval_dataset=Numbers())


def kept(made, name):
    return [float(entry[name]) for entry in made.state.log_history if name in entry]


first = trainer(2)
first.train()
again = trainer(3)
again.train(resume_from_checkpoint=True)
if first.is_world_process_zero():
    found = {"wrapper": type(first.model_wrapped).__name__, "ranks": first.args.world_size, "steps": again.state.global_step}
    print(json.dumps(found | {f"{i} {name}": kept(made, name) for i, made in enumerate((first, again)) for name in ("loss", "eval_loss", "grad_norm")}))
