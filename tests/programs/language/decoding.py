"""Ways to decode and to tune by preferences: speculative sampling, beam search with diverse groups, nucleus sampling; DPO, PPO with GAE and a reward model, GRPO."""
import copy
from collections import namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyLM(nn.Module):
    def __init__(self, vocab=24, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)
        self.value = nn.Linear(dim, 1)

    def forward(self, ids, return_value=False):
        h, _ = self.rnn(self.emb(ids))
        if return_value:
            return self.head(h), self.value(h).squeeze(-1)
        return self.head(h)


def top_k_top_p_filter(logits: torch.Tensor, top_k: int = 0, top_p: float = 0.0):
    if top_k > 0:
        filter = torch.topk(logits, min(top_k, logits.size(-1)))[0]
        logits[logits < filter[:, [-1]]] = float('-inf')
    if top_p > 0.0:
        sorted_logits, sorted_indices = torch.sort(logits, descending=True)
        cumulative_probs = torch.cumsum(F.softmax(sorted_logits, dim=-1), dim=-1)
        filter = cumulative_probs > top_p
        filter[..., 1:] = filter[..., :-1].clone()
        filter[..., 0] = 0
        indices_to_remove = filter.scatter(1, sorted_indices, filter)
        logits[indices_to_remove] = float('-inf')
    return logits


def norm_logits(logits, temperature, top_k, top_p):
    assert logits.dim() == 2
    logits = logits / temperature
    logits = top_k_top_p_filter(logits, top_k=top_k, top_p=top_p)
    return F.softmax(logits, dim=1)


def sample(probs: torch.Tensor, num_samples: int = 1):
    idx_next = torch.multinomial(probs, num_samples=num_samples)
    if (idx_next.item() == 0):
        idx_next = idx_next + 1
    return idx_next


def max_fn(x):
    """norm(max (x, 0))"""
    x_max = torch.where(x > 0, x, torch.zeros_like(x))
    x_max_sum = torch.sum(x_max, dim=1, keepdim=True)
    return x_max / x_max_sum


@torch.no_grad()
def speculative_sampling(prefix, approx_model, target_model, max_len, gamma=3, temperature=1.0, top_k=10, top_p=0.9):
    """feifeibear's LLMSpeculativeSampling."""
    seq_len = prefix.shape[1]
    T = seq_len + max_len
    accepted_count = resample_count = 0
    while prefix.shape[1] < T:
        x = prefix
        prefix_len = prefix.shape[1]
        for _ in range(gamma):
            q = approx_model(x)
            x = torch.cat((x, sample(norm_logits(q[:, -1, :], temperature, top_k, top_p))), dim=1)
        for i in range(q.shape[1]):
            q[:, i, :] = norm_logits(q[:, i, :], temperature, top_k, top_p)
        p = target_model(x)
        for i in range(p.shape[1]):
            p[:, i, :] = norm_logits(p[:, i, :], temperature, top_k, top_p)
        n = prefix_len + gamma - 1
        is_all_accept = True
        for i in range(gamma):
            r = torch.rand(1, device=p.device)
            j = x[:, prefix_len + i]
            if r < torch.min(torch.tensor([1], device=q.device), p[:, prefix_len + i - 1, j] / q[:, prefix_len + i - 1, j]):
                accepted_count += 1  # accept, and update n
            else:
                # reject, sample from the difference
                t = sample(max_fn(p[:, n - gamma + i, :] - q[:, n - gamma + i, :]))
                resample_count += 1
                n = prefix_len + i - 1
                is_all_accept = False
                break
        prefix = x[:, :n + 1]
        if is_all_accept:
            t = sample(p[:, -1, :])
        prefix = torch.cat((prefix, t), dim=1)
    return prefix, accepted_count, resample_count


@torch.no_grad()
def diverse_beam(model, ids, beams=4, groups=2, steps=5, diversity=0.5):
    group = beams // groups
    sequences = [ids.repeat(group, 1) for _ in range(groups)]
    scores = [torch.full((group,), -1e9).index_fill_(0, torch.tensor([0]), 0.0) for _ in range(groups)]
    for _ in range(steps):
        chosen = torch.zeros(24)
        for g in range(groups):
            logp = F.log_softmax(model(sequences[g])[:, -1], -1) - diversity * chosen
            total = (scores[g].unsqueeze(1) + logp).view(-1)
            scores[g], index = total.topk(group)
            beam, token = index // 24, index.remainder(24)
            sequences[g] = torch.cat([sequences[g][beam], token[:, None]], 1)
            chosen += torch.bincount(token, minlength=24).float()
    return torch.cat(sequences), torch.cat(scores)


def logprobs_from_logits(logits, labels):
    logp = F.log_softmax(logits, dim=2)
    logpy = torch.gather(logp, 2, labels.unsqueeze(2)).squeeze(-1)
    return logpy


def _get_batch_logps(logits, labels, average_log_prob=False):
    """eric-mitchell's direct-preference-optimization."""
    assert logits.shape[:-1] == labels.shape
    labels = labels[:, 1:].clone()
    logits = logits[:, :-1, :]
    loss_mask = (labels != -100)
    # dummy token; we'll ignore the losses on these tokens later
    labels[labels == -100] = 0
    per_token_logps = torch.gather(logits.log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
    if average_log_prob:
        return (per_token_logps * loss_mask).sum(-1) / loss_mask.sum(-1)
    else:
        return (per_token_logps * loss_mask).sum(-1)


def preference_loss(policy_chosen_logps, policy_rejected_logps, reference_chosen_logps, reference_rejected_logps, beta, label_smoothing=0.0, ipo=False):
    pi_logratios = policy_chosen_logps - policy_rejected_logps
    ref_logratios = reference_chosen_logps - reference_rejected_logps
    logits = pi_logratios - ref_logratios
    if ipo:
        losses = (logits - 1 / (2 * beta)) ** 2
    else:
        losses = -F.logsigmoid(beta * logits) * (1 - label_smoothing) - F.logsigmoid(-beta * logits) * label_smoothing
    chosen_rewards = beta * (policy_chosen_logps - reference_chosen_logps).detach()
    rejected_rewards = beta * (policy_rejected_logps - reference_rejected_logps).detach()
    return losses, chosen_rewards, rejected_rewards


def whiten(values, shift_mean=True):
    """Whiten values."""
    mean, var = torch.mean(values), torch.var(values)
    whitened = (values - mean) * torch.rsqrt(var + 1e-8)
    if not shift_mean:
        whitened += mean
    return whitened


def ppo_loss(old_logprobs, values, rewards, logits, vpreds, labels, gamma=1.0, lam=0.95, cliprange=0.2, cliprange_value=0.2, vf_coef=0.1):
    """trl's PPOTrainer.loss (2020)."""
    lastgaelam = 0
    advantages_reversed = []
    gen_len = rewards.shape[1]
    for t in reversed(range(gen_len)):
        nextvalues = values[:, t + 1] if t < gen_len - 1 else 0.0
        delta = rewards[:, t] + gamma * nextvalues - values[:, t]
        lastgaelam = delta + gamma * lam * lastgaelam
        advantages_reversed.append(lastgaelam)
    advantages = torch.stack(advantages_reversed[::-1]).transpose(0, 1)
    returns = advantages + values
    advantages = whiten(advantages)
    advantages = advantages.detach()
    logprob = logprobs_from_logits(logits, labels)
    vpredclipped = torch.max(torch.min(vpreds, values + cliprange_value), values - cliprange_value)
    vf_losses1 = (vpreds - returns)**2
    vf_losses2 = (vpredclipped - returns)**2
    vf_loss = .5 * torch.mean(torch.max(vf_losses1, vf_losses2))
    vf_clipfrac = torch.mean(torch.gt(vf_losses2, vf_losses1).double())
    ratio = torch.exp(logprob - old_logprobs)
    pg_losses = -advantages * ratio
    pg_losses2 = -advantages * torch.clamp(ratio, 1.0 - cliprange, 1.0 + cliprange)
    pg_loss = torch.mean(torch.max(pg_losses, pg_losses2))
    pg_clipfrac = torch.mean(torch.gt(pg_losses2, pg_losses).double())
    pd = torch.nn.functional.softmax(logits, dim=-1)
    entropy = torch.mean(torch.logsumexp(logits, axis=-1) - torch.sum(pd*logits, axis=-1))
    approxkl = .5 * torch.mean((logprob - old_logprobs)**2)
    return pg_loss + vf_coef * vf_loss, dict(vf=vf_clipfrac, pg=pg_clipfrac, entropy=entropy, kl=approxkl, returns=returns, advantages=advantages)


Rollout = namedtuple("Rollout", "ids logprobs values rewards")


def program():
    torch.manual_seed(0)
    target, draft = TinyLM(), TinyLM()
    target.eval(), draft.eval()
    yield "initial", {"target": target, "draft": draft}
    yield "speculative", speculative_sampling(torch.tensor([[1, 2, 3]]), draft, target, 7)
    yield "diverse beams", diverse_beam(target, torch.tensor([[4, 5]]))
    g = torch.Generator().manual_seed(3)
    yield "nucleus", torch.multinomial(norm_logits(torch.randn(6, 24, generator=g) * 2, 0.8, 0, 0.7), 3, replacement=True, generator=g)
    # direct preference optimisation
    policy, reference = copy.deepcopy(target), copy.deepcopy(target)
    reference.requires_grad_(False)
    chosen, rejected = torch.randint(0, 24, (3, 9)), torch.randint(0, 24, (3, 9))
    labels = [chosen.clone(), rejected.clone()]
    for l in labels:
        l[:, :3] = -100
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-3)
    losses = []
    for step in range(3):
        logps = _get_batch_logps(policy(torch.cat([chosen, rejected])), torch.cat(labels))
        with torch.no_grad():
            ref = _get_batch_logps(reference(torch.cat([chosen, rejected])), torch.cat(labels))
        loss, chosen_rewards, rejected_rewards = preference_loss(*logps.chunk(2), *ref.chunk(2), beta=0.5, label_smoothing=0.1, ipo=step == 2)
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
        losses.append([loss.detach(), (chosen_rewards > rejected_rewards).float().mean()])
        if step == 0:
            yield "dpo gradients", {n: p.grad for n, p in policy.named_parameters()}
    yield "dpo losses", losses
    # proximal policy optimisation over text
    with torch.no_grad():
        ids = torch.randint(0, 24, (4, 3))
        for _ in range(6):
            probs = F.softmax(policy(ids)[:, -1], -1)
            ids = torch.cat([ids, torch.multinomial(probs, 1)], 1)
        logits, values = policy(ids[:, :-1], return_value=True)
        logprobs = logprobs_from_logits(logits, ids[:, 1:])[:, -6:]
        kl = logprobs - logprobs_from_logits(reference(ids[:, :-1]), ids[:, 1:])[:, -6:]
        rewards = -0.2 * kl
        rewards[:, -1] += (ids == 7).float().sum(1) - 0.5
        rollout = Rollout(ids, logprobs, values[:, -6:], rewards)
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    for epoch in range(3):
        for minibatch in torch.randperm(4).chunk(2):
            ids, old, values, rewards = (t[minibatch] for t in rollout)
            logits, vpred = policy(ids[:, :-1], return_value=True)
            loss, stats = ppo_loss(old, values, rewards, logits[:, -6:], vpred[:, -6:], ids[:, -6:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield f"ppo {epoch}", [loss, stats]
    # group relative advantages
    group = rollout.rewards.sum(1).view(2, 2)
    advantage = ((group - group.mean(1, keepdim=True)) / (group.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    logp = logprobs_from_logits(policy(rollout.ids[:, :-1]), rollout.ids[:, 1:])[:, -6:]
    coef = torch.exp(logp - logp.detach())
    per_token = -torch.min(coef * advantage, torch.clamp(coef, 0.8, 1.2) * advantage) + 0.04 * (torch.exp(rollout.logprobs - logp) - (rollout.logprobs - logp) - 1)
    policy.zero_grad()
    per_token.mean().backward()
    yield "grpo", [per_token, {n: p.grad for n, p in policy.named_parameters()}]
