"""Mixture of experts: Mixtral's sparse block (topk, one_hot, index_add_), Switch routing with capacity, load balancing and z losses."""
import torch
import torch.nn.functional as F
from torch import nn


class MixtralBlockSparseTop2MLP(nn.Module):
    def __init__(self, hidden_dim, ffn_dim):
        super().__init__()
        self.w1 = nn.Linear(hidden_dim, ffn_dim, bias=False)
        self.w2 = nn.Linear(ffn_dim, hidden_dim, bias=False)
        self.w3 = nn.Linear(hidden_dim, ffn_dim, bias=False)
        self.act_fn = F.silu

    def forward(self, hidden_states):
        current_hidden_states = self.act_fn(self.w1(hidden_states)) * self.w3(hidden_states)
        current_hidden_states = self.w2(current_hidden_states)
        return current_hidden_states


class MixtralSparseMoeBlock(nn.Module):
    def __init__(self, hidden_dim, ffn_dim, num_experts, top_k, jitter_noise=0.0):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.num_experts = num_experts
        self.top_k = top_k
        self.gate = nn.Linear(self.hidden_dim, self.num_experts, bias=False)
        self.experts = nn.ModuleList([MixtralBlockSparseTop2MLP(hidden_dim, ffn_dim) for _ in range(self.num_experts)])
        self.jitter_noise = jitter_noise

    def forward(self, hidden_states: torch.Tensor):
        batch_size, sequence_length, hidden_dim = hidden_states.shape
        if self.training and self.jitter_noise > 0:
            hidden_states = hidden_states * torch.empty_like(hidden_states).uniform_(1.0 - self.jitter_noise, 1.0 + self.jitter_noise)
        hidden_states = hidden_states.view(-1, hidden_dim)
        router_logits = self.gate(hidden_states)
        routing_weights = F.softmax(router_logits, dim=1, dtype=torch.float)
        routing_weights, selected_experts = torch.topk(routing_weights, self.top_k, dim=-1)
        routing_weights /= routing_weights.sum(dim=-1, keepdim=True)
        routing_weights = routing_weights.to(hidden_states.dtype)
        final_hidden_states = torch.zeros((batch_size * sequence_length, hidden_dim), dtype=hidden_states.dtype, device=hidden_states.device)
        # One hot encode the selected experts to create an expert mask
        expert_mask = torch.nn.functional.one_hot(selected_experts, num_classes=self.num_experts).permute(2, 1, 0)
        for expert_idx in range(self.num_experts):
            expert_layer = self.experts[expert_idx]
            idx, top_x = torch.where(expert_mask[expert_idx])
            current_state = hidden_states[None, top_x].reshape(-1, hidden_dim)
            current_hidden_states = expert_layer(current_state) * routing_weights[top_x, idx, None]
            # However `index_add_` only support torch tensors for indexing so we'll use the `top_x` tensor here.
            final_hidden_states.index_add_(0, top_x, current_hidden_states.to(hidden_states.dtype))
        final_hidden_states = final_hidden_states.reshape(batch_size, sequence_length, hidden_dim)
        return final_hidden_states, router_logits


def load_balancing_loss_func(gate_logits, num_experts, top_k=2):
    concatenated_gate_logits = torch.cat([layer_gate for layer_gate in gate_logits], dim=0)
    routing_weights = torch.nn.functional.softmax(concatenated_gate_logits, dim=-1)
    _, selected_experts = torch.topk(routing_weights, top_k, dim=-1)
    expert_mask = torch.nn.functional.one_hot(selected_experts, num_experts)
    tokens_per_expert = torch.mean(expert_mask.float(), dim=0)
    router_prob_per_expert = torch.mean(routing_weights, dim=0)
    overall_loss = torch.sum(tokens_per_expert * router_prob_per_expert.unsqueeze(0))
    return overall_loss * num_experts


class SwitchFeedForward(nn.Module):
    """labml.ai's Switch: one expert a token, a capacity, dropped tokens pass through."""

    def __init__(self, *, capacity_factor: float, drop_tokens: bool, is_scale_prob: bool, n_experts: int, d_model: int):
        super().__init__()
        self.capacity_factor = capacity_factor
        self.is_scale_prob = is_scale_prob
        self.n_experts = n_experts
        self.drop_tokens = drop_tokens
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(d_model, 2 * d_model), nn.ReLU(), nn.Linear(2 * d_model, d_model)) for _ in range(n_experts)])
        self.switch = nn.Linear(d_model, n_experts)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x: torch.Tensor):
        seq_len, batch_size, d_model = x.shape
        x = x.view(-1, d_model)
        route_prob = self.softmax(self.switch(x))
        route_prob_max, routes = torch.max(route_prob, dim=-1)
        indexes_list = [torch.eq(routes, i).nonzero(as_tuple=True)[0] for i in range(self.n_experts)]
        final_output = x.new_zeros(x.shape)
        capacity = int(self.capacity_factor * len(x) / self.n_experts)
        counts = x.new_tensor([len(indexes_list[i]) for i in range(self.n_experts)])
        dropped = []
        if self.drop_tokens:
            for i in range(self.n_experts):
                if len(indexes_list[i]) <= capacity:
                    continue
                indexes_list[i] = indexes_list[i][torch.randperm(len(indexes_list[i]))]
                dropped.append(indexes_list[i][capacity:])
                indexes_list[i] = indexes_list[i][:capacity]
        expert_output = [self.experts[i](x[indexes_list[i], :]) for i in range(self.n_experts)]
        for i in range(self.n_experts):
            final_output[indexes_list[i], :] = expert_output[i]
        if dropped:
            dropped = torch.cat(dropped)
            final_output[dropped, :] = x[dropped, :]
        if self.is_scale_prob:
            final_output = final_output * route_prob_max.view(-1, 1)
        else:
            final_output = final_output * (route_prob_max / route_prob_max.detach()).view(-1, 1)
        final_output = final_output.view(seq_len, batch_size, d_model)
        return final_output, counts, route_prob.sum(0), len(dropped), route_prob_max


class Model(nn.Module):
    def __init__(self, moe):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.norm = nn.RMSNorm(16, eps=1e-5)
        self.moe = moe
        self.lm_head = nn.Linear(16, 50, bias=False)

    def forward(self, ids):
        h = self.embed(ids)
        out, *rest = self.moe(self.norm(h))
        return self.lm_head(h + out), rest


def program():
    torch.manual_seed(0)
    model = Model(MixtralSparseMoeBlock(16, 24, 5, 2, jitter_noise=0.01))
    yield "initial mixtral", model
    ids = torch.randint(0, 50, (3, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(3):
        logits, (router_logits,) = model(ids[:, :-1])
        aux = load_balancing_loss_func((router_logits,), 5)
        z_loss = torch.logsumexp(router_logits, dim=-1).square().mean()
        loss = F.cross_entropy(logits.reshape(-1, 50), ids[:, 1:].reshape(-1)) + 0.02 * aux + 1e-3 * z_loss
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            yield "logits", [logits, router_logits]
            yield "gradients", model
        optimizer.step()
        losses.append([loss.item(), aux.item(), z_loss.item()])
    yield "losses", losses
    for drop, scale in ((True, True), (False, False)):
        torch.manual_seed(1)
        model = Model(SwitchFeedForward(capacity_factor=1.0, drop_tokens=drop, is_scale_prob=scale, n_experts=4, d_model=16))
        logits, (counts, route_prob, n_dropped, route_prob_max) = model(ids)
        route_frac = counts / counts.sum()
        load = 4 * (route_frac * (route_prob / counts.sum())).sum()
        (F.cross_entropy(logits[:, :-1].reshape(-1, 50), ids[:, 1:].reshape(-1)) + load).backward()
        yield "switch", [logits, counts, route_prob, n_dropped, route_prob_max, load]
        yield "switch gradients", model
