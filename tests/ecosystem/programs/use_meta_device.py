"""accelerate, transformers: models on the device meta take their weights from files: init_empty_weights, offloading, from_pretrained."""

import json
import tempfile

import torch
import warm
from accelerate import cpu_offload, init_empty_weights, load_checkpoint_and_dispatch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.b(self.norm(self.a(x)).relu())


torch.manual_seed(0)
net, x, folder = Net().eval(), torch.randn(3, 8), tempfile.mkdtemp()
save_file(net.state_dict(), folder + "/net.safetensors")
with init_empty_weights(include_buffers=True):
    empty = Net()
found = {"net": net(x).flatten().tolist(), "empty": [str(p.device) for p in empty.parameters()]}
loaded = load_checkpoint_and_dispatch(empty, folder + "/net.safetensors", device_map={"a": "cpu", "norm": "cpu", "b": "disk"}, offload_folder=folder)
found["loaded"] = loaded.eval()(x).flatten().tolist()
cpu_offload(net, execution_device=torch.device("cpu"))
found["offloaded"] = [*net(x).flatten().tolist(), str(net.a.weight.device)]
sizes = {"vocab_size": 100, "bos_token_id": 1, "eos_token_id": 2}
for config, kind in (
    (GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, **sizes), GPT2LMHeadModel),
    (LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **sizes), LlamaForCausalLM),
):
    kind(config).save_pretrained(folder + "/" + kind.__name__)
    model = AutoModelForCausalLM.from_pretrained(folder + "/" + kind.__name__).eval()
    ids = torch.arange(12).reshape(2, 6)
    found[kind.__name__] = model(ids).logits.flatten()[:8].tolist()
    found[f"{kind.__name__} tokens"] = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0).flatten().tolist()
    with torch.device("meta"):
        found[f"{kind.__name__} on meta"] = [kind(config).num_parameters(), *kind(config)(ids.to("meta")).logits.shape]
print(json.dumps(found))
warm.measure("Llama: 8 tokens", lambda: model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0))
