"""transformers: GPT-2, Llama and BERT from a seed: logits, greedy, sampled and beam generation with a cache."""

import json

import torch
import warm
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

found = {}
torch.manual_seed(0)
gpt = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=None)).eval()
llama = LlamaForCausalLM(LlamaConfig(
    vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, eos_token_id=None,
)).eval()  # fmt: skip
prompt = torch.tensor([[1, 5, 9, 3]])
for name, model in (("gpt2", gpt), ("llama", llama)):
    with torch.no_grad():
        found[f"{name} logits"] = model(prompt).logits[0, -1, :8].tolist()
    options = {"max_new_tokens": 8, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
    found[f"{name} greedy"] = model.generate(prompt, do_sample=False, **options)[0].tolist()
    found[f"{name} beams"] = model.generate(prompt, do_sample=False, num_beams=3, **options)[0].tolist()
    torch.manual_seed(1)
    found[f"{name} sampled"] = model.generate(prompt, do_sample=True, top_k=10, temperature=0.8, **options)[0].tolist()
    loss = model(prompt, labels=prompt).loss
    loss.backward()
    found[f"{name} loss"] = loss.item()
    found[f"{name} gradient"] = sum(p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None)
bert = BertModel(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)).eval()
with torch.no_grad():
    found["bert"] = bert(prompt).last_hidden_state[0, 0].tolist()
print(json.dumps(found))


def step():
    llama.zero_grad()
    loss = llama(prompt, labels=prompt).loss
    loss.backward()
    return loss.item()


warm.measure("Llama: forward and backward", step)
warm.measure("GPT-2: 8 tokens", lambda: gpt.generate(prompt, do_sample=False, **options))
