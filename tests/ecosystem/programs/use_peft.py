"""peft: LoRA around a small Llama: a training step, merged weights."""

import json

import torch
import warm
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
base = LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2))
model = get_peft_model(base, LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0, task_type="CAUSAL_LM"))
tokens = torch.randint(0, 40, (2, 6))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
losses = []
for _ in range(3):
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    before = model(input_ids=tokens).logits[0, 0, :4].tolist()
    after = model.merge_and_unload()(input_ids=tokens).logits[0, 0, :4].tolist()
trainable = sum(p.numel() for n, p in base.named_parameters() if "lora" in n)
print(json.dumps({"losses": losses, "before": before, "merged": after, "trainable": trainable}))
model = get_peft_model(base, LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0, task_type="CAUSAL_LM"))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)


def step():
    optimizer.zero_grad()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    return loss.item()


warm.measure("LoRA: training step", step)
