"""trl, datasets: supervised fine-tuning of a small Llama for a few steps."""

import json
import tempfile

import torch
import warm
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

texts = ["a cat sits here", "a dog runs there", "the cat runs", "the dog sits", "a cat runs there", "the dog runs here", "a dog sits", "the cat sits there"]
tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]", "[EOS]"]))
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]")
set_seed(0)
config = LlamaConfig(vocab_size=20, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=16)
model = LlamaForCausalLM(config)
with tempfile.TemporaryDirectory() as folder:
    arguments = SFTConfig(
        output_dir=folder, max_steps=4, per_device_train_batch_size=2, logging_steps=1, report_to=[], use_cpu=True, save_strategy="no", max_length=8,
        learning_rate=1e-2, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
    )  # fmt: skip
    trainer = SFTTrainer(model=model, args=arguments, train_dataset=Dataset.from_dict({"text": texts}), processing_class=fast)
    trainer.train()
losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
with torch.no_grad():
    logits = model(input_ids=torch.tensor([[3, 4, 5]])).logits[0, -1, :4]
print(json.dumps({"losses": [float(v) for v in losses], "logits": logits.tolist()}))
batch = torch.tensor([[3, 4, 5, 6]])


def step():
    model.zero_grad()
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    return loss.item()


warm.measure("Llama: forward and backward", step)
