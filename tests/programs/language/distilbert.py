"""DistilBERT: student from alternate teacher layers, distillation with KLDivLoss and CosineEmbeddingLoss, question answering head."""
import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    vocab_size, max_position_embeddings, dim, hidden_dim, n_heads = 70, 24, 24, 48, 3
    dropout, attention_dropout, initializer_range, sinusoidal_pos_embds = 0.1, 0.1, 0.02, True

    def __init__(self, n_layers):
        self.n_layers = n_layers


def create_sinusoidal_embeddings(n_pos, dim, out):
    position_enc = np.array([[pos / np.power(10000, 2 * (j // 2) / dim) for j in range(dim)] for pos in range(n_pos)])
    out.requires_grad = False
    out[:, 0::2] = torch.FloatTensor(np.sin(position_enc[:, 0::2]))
    out[:, 1::2] = torch.FloatTensor(np.cos(position_enc[:, 1::2]))
    out.detach_()


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.dim, padding_idx=0)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.dim)
        if config.sinusoidal_pos_embds:
            create_sinusoidal_embeddings(n_pos=config.max_position_embeddings, dim=config.dim, out=self.position_embeddings.weight)
        self.LayerNorm = nn.LayerNorm(config.dim, eps=1e-12)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids):
        seq_length = input_ids.size(1)
        position_ids = torch.arange(seq_length, dtype=torch.long, device=input_ids.device)
        position_ids = position_ids.unsqueeze(0).expand_as(input_ids)
        embeddings = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_heads = config.n_heads
        self.dim = config.dim
        self.dropout = nn.Dropout(p=config.attention_dropout)
        assert self.dim % self.n_heads == 0
        self.q_lin = nn.Linear(in_features=config.dim, out_features=config.dim)
        self.k_lin = nn.Linear(in_features=config.dim, out_features=config.dim)
        self.v_lin = nn.Linear(in_features=config.dim, out_features=config.dim)
        self.out_lin = nn.Linear(in_features=config.dim, out_features=config.dim)

    def forward(self, query, key, value, mask):
        bs, q_length, dim = query.size()
        k_length = key.size(1)
        dim_per_head = self.dim // self.n_heads
        mask_reshp = (bs, 1, 1, k_length)

        def shape(x):
            """separate heads"""
            return x.view(bs, -1, self.n_heads, dim_per_head).transpose(1, 2)

        def unshape(x):
            """group heads"""
            return x.transpose(1, 2).contiguous().view(bs, -1, self.n_heads * dim_per_head)

        q = shape(self.q_lin(query))
        k = shape(self.k_lin(key))
        v = shape(self.v_lin(value))
        q = q / math.sqrt(dim_per_head)
        scores = torch.matmul(q, k.transpose(2, 3))
        mask = (mask == 0).view(mask_reshp).expand_as(scores)
        scores = scores.masked_fill(mask, torch.tensor(torch.finfo(scores.dtype).min))
        weights = self.dropout(nn.functional.softmax(scores, dim=-1))
        return self.out_lin(unshape(torch.matmul(weights, v)))


class FFN(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dropout = nn.Dropout(p=config.dropout)
        self.lin1 = nn.Linear(in_features=config.dim, out_features=config.hidden_dim)
        self.lin2 = nn.Linear(in_features=config.hidden_dim, out_features=config.dim)
        self.activation = nn.GELU()

    def forward(self, input):
        return self.dropout(self.lin2(self.activation(self.lin1(input))))


class TransformerBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = MultiHeadSelfAttention(config)
        self.sa_layer_norm = nn.LayerNorm(normalized_shape=config.dim, eps=1e-12)
        self.ffn = FFN(config)
        self.output_layer_norm = nn.LayerNorm(normalized_shape=config.dim, eps=1e-12)

    def forward(self, x, attn_mask=None):
        sa_output = self.attention(query=x, key=x, value=x, mask=attn_mask)
        sa_output = self.sa_layer_norm(sa_output + x)
        return self.output_layer_norm(self.ffn(sa_output) + sa_output)


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        layer = TransformerBlock(config)
        self.layer = nn.ModuleList([copy.deepcopy(layer) for _ in range(config.n_layers)])

    def forward(self, x, attn_mask=None):
        all_hidden_states = ()
        hidden_state = x
        for layer_module in self.layer:
            all_hidden_states = all_hidden_states + (hidden_state,)
            hidden_state = layer_module(x=hidden_state, attn_mask=attn_mask)
        return all_hidden_states + (hidden_state,)


class DistilBertForMaskedLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.transformer = Transformer(config)
        self.vocab_transform = nn.Linear(config.dim, config.dim)
        self.vocab_layer_norm = nn.LayerNorm(config.dim, eps=1e-12)
        self.vocab_projector = nn.Linear(config.dim, config.vocab_size)
        self.apply(self._init_weights)
        self.vocab_projector.weight = self.embeddings.word_embeddings.weight

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(mean=0.0, std=self.config.initializer_range)
            if module.bias is not None:
                module.bias.data.zero_()
        elif isinstance(module, nn.Embedding) and module.weight.requires_grad:
            module.weight.data.normal_(mean=0.0, std=self.config.initializer_range)
            if module.padding_idx is not None:
                module.weight.data[module.padding_idx].zero_()
        elif isinstance(module, nn.LayerNorm):
            module.bias.data.zero_()
            module.weight.data.fill_(1.0)

    def forward(self, input_ids, attention_mask):
        hidden_states = self.transformer(self.embeddings(input_ids), attention_mask)
        prediction_logits = self.vocab_transform(hidden_states[-1])
        prediction_logits = F.gelu(prediction_logits)
        prediction_logits = self.vocab_layer_norm(prediction_logits)
        return self.vocab_projector(prediction_logits), hidden_states


class Distiller:
    def __init__(self, student, teacher, temperature=2.0, alpha_ce=5.0, alpha_mlm=2.0, alpha_cos=1.0):
        self.student, self.teacher = student, teacher
        self.temperature = temperature
        self.alpha_ce, self.alpha_mlm, self.alpha_cos = alpha_ce, alpha_mlm, alpha_cos
        self.ce_loss_fct = nn.KLDivLoss(reduction="batchmean")
        self.lm_loss_fct = nn.CrossEntropyLoss(ignore_index=-100)
        self.cosine_loss_fct = nn.CosineEmbeddingLoss(reduction="mean")

    def step(self, input_ids, attention_mask, lm_labels):
        s_logits, s_hidden_states = self.student(input_ids, attention_mask)
        with torch.no_grad():
            t_logits, t_hidden_states = self.teacher(input_ids, attention_mask)
        mask = attention_mask.unsqueeze(-1).expand_as(s_logits).bool()
        s_logits_slct = torch.masked_select(s_logits, mask)
        s_logits_slct = s_logits_slct.view(-1, s_logits.size(-1))
        t_logits_slct = torch.masked_select(t_logits, mask)
        t_logits_slct = t_logits_slct.view(-1, s_logits.size(-1))
        assert t_logits_slct.size() == s_logits_slct.size()
        loss_ce = (
            self.ce_loss_fct(
                nn.functional.log_softmax(s_logits_slct / self.temperature, dim=-1),
                nn.functional.softmax(t_logits_slct / self.temperature, dim=-1),
            )
            * (self.temperature) ** 2
        )
        loss = self.alpha_ce * loss_ce
        loss_mlm = self.lm_loss_fct(s_logits.view(-1, s_logits.size(-1)), lm_labels.view(-1))
        loss += self.alpha_mlm * loss_mlm
        s_hidden, t_hidden = s_hidden_states[-1], t_hidden_states[-1]
        mask = attention_mask.unsqueeze(-1).expand_as(s_hidden).bool()
        dim = s_hidden.size(-1)
        s_hidden_slct = torch.masked_select(s_hidden, mask).view(-1, dim)
        t_hidden_slct = torch.masked_select(t_hidden, mask).view(-1, dim)
        target = s_hidden_slct.new(s_hidden_slct.size(0)).fill_(1)
        loss_cos = self.cosine_loss_fct(s_hidden_slct, t_hidden_slct, target)
        loss += self.alpha_cos * loss_cos
        return loss, loss_ce, loss_mlm, loss_cos


def init_student(teacher, config):
    """Initialize the student from one layer out of two of the teacher."""
    state_dict = teacher.state_dict()
    compressed_sd = {}
    for k, v in state_dict.items():
        if not k.startswith("transformer.layer."):
            compressed_sd[k] = v
    for std_idx, teacher_idx in enumerate([0, 2]):
        for w in ["attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"]:
            for kind in ["weight", "bias"]:
                compressed_sd[f"transformer.layer.{std_idx}.{w}.{kind}"] = state_dict[f"transformer.layer.{teacher_idx}.{w}.{kind}"]
    student = DistilBertForMaskedLM(config)
    result = student.load_state_dict(compressed_sd, strict=False)
    return student, result


def freeze_pos_embeddings(student):
    student.embeddings.position_embeddings.weight.requires_grad = False


class DistilBertForQuestionAnswering(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.distilbert = backbone
        self.qa_outputs = nn.Linear(backbone.config.dim, 2)

    def forward(self, input_ids, attention_mask, start_positions, end_positions):
        logits = self.qa_outputs(self.distilbert(input_ids, attention_mask)[1][-1])
        start_logits, end_logits = logits.split(1, dim=-1)
        start_logits = start_logits.squeeze(-1).contiguous()
        end_logits = end_logits.squeeze(-1).contiguous()
        # sometimes the start/end positions are outside our model inputs, we ignore these terms
        ignored_index = start_logits.size(1)
        start_positions = start_positions.clamp(0, ignored_index)
        end_positions = end_positions.clamp(0, ignored_index)
        loss_fct = nn.CrossEntropyLoss(ignore_index=ignored_index)
        return (loss_fct(start_logits, start_positions) + loss_fct(end_logits, end_positions)) / 2, start_logits, end_logits


def program():
    torch.manual_seed(56)
    np.random.seed(56)
    teacher = DistilBertForMaskedLM(Config(4))
    teacher.eval()
    student, result = init_student(teacher, Config(2))
    yield "missing", [result.missing_keys, result.unexpected_keys]
    freeze_pos_embeddings(student)
    yield "initial student", student
    lengths = torch.tensor([15, 11, 7])
    input_ids = torch.randint(1, 70, (3, 15))
    attn_mask = torch.arange(15, dtype=torch.long, device=lengths.device) < lengths[:, None]
    input_ids.masked_fill_(~attn_mask, 0)
    lm_labels = torch.where(torch.rand(input_ids.shape) < 0.2, input_ids, torch.full_like(input_ids, -100))
    lm_labels[~attn_mask] = -100
    optimizer = torch.optim.AdamW([p for p in student.parameters() if p.requires_grad], lr=5e-4, eps=1e-6, betas=(0.9, 0.98))
    distiller = Distiller(student.train(), teacher)
    losses = []
    for step in range(3):
        loss = distiller.step(input_ids, attn_mask, lm_labels)
        optimizer.zero_grad()
        loss[0].backward()
        if step == 0:
            yield "gradients", student
        optimizer.step()
        losses.append([l.item() for l in loss])
    yield "losses", losses
    qa = DistilBertForQuestionAnswering(student.eval())
    loss, start, end = qa(input_ids, attn_mask, torch.tensor([3, 40, 2]), torch.tensor([5, 4, -3]))
    loss.backward()
    yield "question answering", [loss, start, end]
    yield "with answers", qa
