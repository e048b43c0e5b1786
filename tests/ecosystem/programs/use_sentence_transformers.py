"""sentence-transformers, tokenizers, datasets: a tokenizer trained on a few texts, a small BERT with mean pooling, a training step, similarities."""

import json
import tempfile
from pathlib import Path

import torch
import warm
from datasets import Dataset
from sentence_transformers import SentenceTransformer, losses, util
from sentence_transformers.models import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

texts = Dataset.from_dict({"text": ["a cat sits here", "a dog runs there", "the cat runs", "the dog sits"]}).map(lambda row: {"length": len(row["text"])})
tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(texts["text"], trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"]))
torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    fast.save_pretrained(folder)
    BertModel(BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)).save_pretrained(folder)
    words = Transformer(str(Path(folder)), max_seq_length=8)
    model = SentenceTransformer(modules=[words, Pooling(16)], device="cpu")
first = model.encode(texts["text"], convert_to_tensor=True)
loss = losses.CosineSimilarityLoss(model)
model.eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
values = []
for _ in range(2):
    features = [dict(fast([a, b], padding=True, return_tensors="pt")) for a, b in (("a cat", "the dog"), ("a dog", "the cat"))]
    value = loss(features, torch.tensor([0.3, 0.9]))
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    values.append(value.item())
found = {"lengths": texts["length"], "embedding": first[0, :4].tolist(), "losses": values}
found["similarities"] = util.cos_sim(first, model.encode(texts["text"], convert_to_tensor=True)).flatten().tolist()
print(json.dumps({**found, "lengths": list(found["lengths"])}))


def step():
    optimizer.zero_grad()
    value = loss([dict(f) for f in features], torch.tensor([0.3, 0.9]))
    value.backward()
    optimizer.step()
    return value.item()


warm.measure("training step", step)
warm.measure("encode 4 texts", lambda: model.encode(list(texts["text"]), convert_to_tensor=True).sum().item())
