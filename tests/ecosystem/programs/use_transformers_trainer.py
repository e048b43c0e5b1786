"""transformers: Trainer on a small BERT with evaluation and checkpoints, resumed from one; a pipeline of the saved model."""

import json
import tempfile

import numpy
import torch
import warm
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, Trainer, TrainingArguments, pipeline, set_seed

texts = ["a cat sits here", "a dog runs there", "the cat runs", "the dog sits", "a cat runs there", "the dog runs here", "a dog sits", "the cat sits"]
tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"]))
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
rows = [{**fast(text, padding="max_length", max_length=6), "labels": int("cat" in text)} for text in texts]


def trained(folder, steps, resume=None):
    set_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32))
    arguments = TrainingArguments(
        folder, max_steps=steps, per_device_train_batch_size=2, logging_steps=1, save_steps=3, eval_strategy="steps", eval_steps=3, learning_rate=1e-2,
        report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    accuracy = lambda p: {"accuracy": float((numpy.argmax(p.predictions, 1) == p.label_ids).mean())}
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows, compute_metrics=accuracy)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


with tempfile.TemporaryDirectory() as folder:
    first = trained(folder, 6)
    again = trained(folder, 6, f"{folder}/checkpoint-3")
    first.save_model(f"{folder}/saved")
    fast.save_pretrained(f"{folder}/saved")
    classify = pipeline("text-classification", model=f"{folder}/saved", tokenizer=f"{folder}/saved", device="cpu")
    labels = [[row["label"], row["score"]] for row in classify(["a cat", "the dog runs"])]
log = [{k: float(row[k]) for k in ("loss", "eval_loss", "eval_accuracy", "grad_norm") if k in row} for row in first.state.log_history]
same = all(torch.equal(a, b) for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))
print(json.dumps({"log": log, "resumed is the same": same, "labels": labels}))
batch = {name: torch.tensor([row[name] for row in rows[:2]]) for name in rows[0]}
optimizer = torch.optim.AdamW(first.model.parameters(), lr=1e-3)


def step():
    optimizer.zero_grad()
    loss = first.model(**batch).loss
    loss.backward()
    optimizer.step()
    return loss.item()


warm.measure("BERT: training step", step)
warm.measure("pipeline of 2 texts", lambda: classify(["a cat", "the dog runs"]))
