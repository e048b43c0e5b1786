"""transformers: T5, ViT, CLIP, Whisper, wav2vec 2, Qwen 2 and Mixtral from a seed: outputs, a loss and its gradient; generation of T5 and Whisper."""

import json

import torch
import transformers as t
import warm


def outcome(model, loss):
    loss.backward()
    return [loss.item(), sum(p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None)]


found = {}
small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
ids = torch.tensor([[3, 5, 7, 9], [4, 6, 8, 1]])
torch.manual_seed(0)
t5 = t.T5ForConditionalGeneration(t.T5Config(vocab_size=30, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0)).eval()
found["t5"] = outcome(t5, t5(input_ids=ids, labels=ids).loss)
found["t5 generates"] = t5.generate(ids, max_new_tokens=6, num_beams=2).tolist()
torch.manual_seed(0)
vit = t.ViTForImageClassification(t.ViTConfig(**small, image_size=16, patch_size=8, num_labels=3)).eval()
found["vit"] = outcome(vit, vit(pixel_values=torch.rand(2, 3, 16, 16), labels=torch.tensor([0, 2])).loss)
torch.manual_seed(0)
text, vision = {**small, "vocab_size": 30, "eos_token_id": 9}, {**small, "image_size": 16, "patch_size": 8}
clip = t.CLIPModel(t.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)).eval()
found["clip"] = outcome(clip, clip(input_ids=ids, pixel_values=torch.rand(2, 3, 16, 16), return_loss=True).loss)
torch.manual_seed(0)
whisper = t.WhisperForConditionalGeneration(t.WhisperConfig(
    vocab_size=30, num_mel_bins=8, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
    decoder_ffn_dim=32, max_source_positions=20, max_target_positions=16, decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    suppress_tokens=[], begin_suppress_tokens=[],
)).eval()  # fmt: skip
features = torch.randn(2, 8, 40)
found["whisper"] = outcome(whisper, whisper(input_features=features, labels=ids).loss)
found["whisper generates"] = whisper.generate(features, max_new_tokens=5, do_sample=False).tolist()
torch.manual_seed(0)
wav = t.Wav2Vec2ForCTC(t.Wav2Vec2Config(
    **small, vocab_size=30, conv_dim=(8, 8), conv_kernel=(10, 3), conv_stride=(5, 2), num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
)).eval()  # fmt: skip
found["wav2vec 2"] = outcome(wav, wav(input_values=torch.randn(2, 400), labels=ids).loss)
for name, kind, config in (("qwen 2", t.Qwen2ForCausalLM, t.Qwen2Config), ("mixtral", t.MixtralForCausalLM, t.MixtralConfig)):
    torch.manual_seed(0)
    more = {"num_local_experts": 4} if name == "mixtral" else {}
    model = kind(config(**small, vocab_size=30, num_key_value_heads=1, max_position_embeddings=32, **more)).eval()
    found[name] = outcome(model, model(input_ids=ids, labels=ids).loss)
    found[f"{name} generates"] = model.generate(ids, max_new_tokens=6, do_sample=False, cache_implementation="static").tolist()
print(json.dumps(found))


def step():
    t5.zero_grad()
    loss = t5(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.item()


warm.measure("T5: forward and backward", step)
with torch.no_grad():
    warm.measure("Mixtral: inference", lambda: model(input_ids=ids).logits.sum().item())
