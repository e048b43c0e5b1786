"""transformers: pipelines of small models: text generation (Mistral), masks, tokens, questions, features, images, speech."""

import json
import tempfile

import numpy
import torch
import transformers as t
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import pipeline

texts = ["a cat sits here", "a dog runs there", "the cat runs", "the dog sits"]
raw = Tokenizer(models.WordLevel(unk_token="[UNK]"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
raw.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
raw.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
tokenizer = t.PreTrainedTokenizerFast(tokenizer_object=raw, **special)
small = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
found = {}
for task, kind, text in (
    ("fill-mask", t.BertForMaskedLM, "a [MASK] sits"), ("token-classification", t.BertForTokenClassification, "the cat runs"),
    ("question-answering", t.BertForQuestionAnswering, None), ("feature-extraction", t.BertModel, "the dog"),
    ("text-classification", t.BertForSequenceClassification, "a dog sits"),
):  # fmt: skip
    if task == "question-answering" and task not in t.pipelines.PIPELINE_REGISTRY.get_supported_tasks():
        continue  # taken out of transformers 5
    torch.manual_seed(0)
    run = pipeline(task, model=kind(t.BertConfig(**small, max_position_embeddings=32)).eval(), tokenizer=tokenizer, device="cpu")
    made = run(question="the cat", context="a cat sits here") if text is None else run(text)
    found[task] = json.loads(json.dumps(made, default=float))
torch.manual_seed(0)
config = t.MistralConfig(**small, num_key_value_heads=1, max_position_embeddings=32, sliding_window=4, eos_token_id=None, pad_token_id=0)
write = pipeline("text-generation", model=t.MistralForCausalLM(config).eval(), tokenizer=tokenizer, device="cpu")
found["text-generation"] = write("a cat", max_new_tokens=6, do_sample=False)
torch.manual_seed(0)
vit = t.ViTForImageClassification(t.ViTConfig(**{k: v for k, v in small.items() if k != "vocab_size"}, image_size=16, patch_size=8, num_labels=3)).eval()
picture = Image.fromarray((numpy.arange(20 * 24 * 3) % 251).astype("uint8").reshape(20, 24, 3))
look = pipeline("image-classification", model=vit, image_processor=t.ViTImageProcessor(size={"height": 16, "width": 16}), device="cpu")
found["image-classification"] = look(picture)
torch.manual_seed(0)
wav = t.Wav2Vec2ForCTC(t.Wav2Vec2Config(
    **small, conv_dim=(8, 8), conv_kernel=(10, 3), conv_stride=(5, 2), num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
)).eval()  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/vocab.json", "w") as file:
        json.dump({"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, **{chr(97 + i): 5 + i for i in range(15)}}, file)
    letters = t.Wav2Vec2CTCTokenizer(f"{folder}/vocab.json")
hear = pipeline("automatic-speech-recognition", model=wav, tokenizer=letters, feature_extractor=t.Wav2Vec2FeatureExtractor(), device="cpu")
found["automatic-speech-recognition"] = hear({"raw": numpy.sin(numpy.arange(1600) / 9).astype("float32"), "sampling_rate": 16000})["text"]
print(json.dumps(found))
