"""DDPG and TD3 in the style of github.com/sfujim/TD3: replay buffer in NumPy, deepcopied targets, Polyak averages, delayed actor steps."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ReplayBuffer(object):
    def __init__(self, state_dim, action_dim, max_size=int(1e3)):
        self.max_size = max_size
        self.ptr = 0
        self.size = 0

        self.state = np.zeros((max_size, state_dim))
        self.action = np.zeros((max_size, action_dim))
        self.next_state = np.zeros((max_size, state_dim))
        self.reward = np.zeros((max_size, 1))
        self.not_done = np.zeros((max_size, 1))

        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def add(self, state, action, next_state, reward, done):
        self.state[self.ptr] = state
        self.action[self.ptr] = action
        self.next_state[self.ptr] = next_state
        self.reward[self.ptr] = reward
        self.not_done[self.ptr] = 1. - done

        self.ptr = (self.ptr + 1) % self.max_size
        self.size = min(self.size + 1, self.max_size)

    def sample(self, batch_size):
        ind = np.random.randint(0, self.size, size=batch_size)

        return (
            torch.FloatTensor(self.state[ind]).to(self.device),
            torch.FloatTensor(self.action[ind]).to(self.device),
            torch.FloatTensor(self.next_state[ind]).to(self.device),
            torch.FloatTensor(self.reward[ind]).to(self.device),
            torch.FloatTensor(self.not_done[ind]).to(self.device)
        )


class Actor(nn.Module):
    def __init__(self, state_dim, action_dim, max_action):
        super(Actor, self).__init__()

        self.l1 = nn.Linear(state_dim, 24)
        self.l2 = nn.Linear(24, 24)
        self.l3 = nn.Linear(24, action_dim)

        self.max_action = max_action

    def forward(self, state):
        a = F.relu(self.l1(state))
        a = F.relu(self.l2(a))
        return self.max_action * torch.tanh(self.l3(a))


class Critic(nn.Module):
    def __init__(self, state_dim, action_dim):
        super(Critic, self).__init__()

        # Q1 architecture
        self.l1 = nn.Linear(state_dim + action_dim, 24)
        self.l3 = nn.Linear(24, 1)

        # Q2 architecture
        self.l4 = nn.Linear(state_dim + action_dim, 24)
        self.l6 = nn.Linear(24, 1)

    def forward(self, state, action):
        sa = torch.cat([state, action], 1)

        q1 = F.relu(self.l1(sa))
        q1 = self.l3(q1)

        q2 = F.relu(self.l4(sa))
        q2 = self.l6(q2)
        return q1, q2

    def Q1(self, state, action):
        sa = torch.cat([state, action], 1)

        q1 = F.relu(self.l1(sa))
        q1 = self.l3(q1)
        return q1


class TD3(object):
    def __init__(self, state_dim, action_dim, max_action, discount=0.99, tau=0.005, policy_noise=0.2, noise_clip=0.5, policy_freq=2):
        self.actor = Actor(state_dim, action_dim, max_action).to(device)
        self.actor_target = copy.deepcopy(self.actor)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=3e-4)

        self.critic = Critic(state_dim, action_dim).to(device)
        self.critic_target = copy.deepcopy(self.critic)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=3e-4)

        self.max_action = max_action
        self.discount = discount
        self.tau = tau
        self.policy_noise = policy_noise
        self.noise_clip = noise_clip
        self.policy_freq = policy_freq

        self.total_it = 0

    def select_action(self, state):
        state = torch.FloatTensor(state.reshape(1, -1)).to(device)
        return self.actor(state).cpu().data.numpy().flatten()

    def train(self, replay_buffer, batch_size=16):
        self.total_it += 1

        # Sample replay buffer
        state, action, next_state, reward, not_done = replay_buffer.sample(batch_size)

        with torch.no_grad():
            # Select action according to policy and add clipped noise
            noise = (
                torch.randn_like(action) * self.policy_noise
            ).clamp(-self.noise_clip, self.noise_clip)

            next_action = (
                self.actor_target(next_state) + noise
            ).clamp(-self.max_action, self.max_action)

            # Compute the target Q value
            target_Q1, target_Q2 = self.critic_target(next_state, next_action)
            target_Q = torch.min(target_Q1, target_Q2)
            target_Q = reward + not_done * self.discount * target_Q

        # Get current Q estimates
        current_Q1, current_Q2 = self.critic(state, action)

        # Compute critic loss
        critic_loss = F.mse_loss(current_Q1, target_Q) + F.mse_loss(current_Q2, target_Q)

        # Optimize the critic
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        # Delayed policy updates
        actor_loss = None
        if self.total_it % self.policy_freq == 0:

            # Compute actor losse
            actor_loss = -self.critic.Q1(state, self.actor(state)).mean()

            # Optimize the actor
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()

            # Update the frozen target models
            for param, target_param in zip(self.critic.parameters(), self.critic_target.parameters()):
                target_param.data.copy_(self.tau * param.data + (1 - self.tau) * target_param.data)

            for param, target_param in zip(self.actor.parameters(), self.actor_target.parameters()):
                target_param.data.copy_(self.tau * param.data + (1 - self.tau) * target_param.data)
        return critic_loss.item(), actor_loss.item() if actor_loss is not None else None


class OrnsteinUhlenbeckNoise:
    """DDPG's exploration noise."""

    def __init__(self, mu, theta=0.1, dt=0.01, sigma=0.1):
        self.theta, self.dt, self.sigma = theta, dt, sigma
        self.mu = mu
        self.x_prev = np.zeros_like(self.mu)

    def __call__(self):
        x = self.x_prev + self.theta * (self.mu - self.x_prev) * self.dt + \
            self.sigma * np.sqrt(self.dt) * np.random.normal(size=self.mu.shape)
        self.x_prev = x
        return x


def ddpg():
    mu, q = Actor(3, 1, 2.0), Critic(3, 1)
    mu_target, q_target = Actor(3, 1, 2.0), Critic(3, 1)
    q_target.load_state_dict(q.state_dict())
    mu_target.load_state_dict(mu.state_dict())
    mu_optimizer = torch.optim.Adam(mu.parameters(), lr=0.0005)
    q_optimizer = torch.optim.Adam(q.parameters(), lr=0.001)
    ou_noise = OrnsteinUhlenbeckNoise(mu=np.zeros(1))
    s = np.array([1.0, 0.0, 0.0])
    memory = []
    for _ in range(12):
        a = mu(torch.from_numpy(s).float())
        a = a.item() + ou_noise()[0]
        s_prime = np.tanh(s + np.array([0.1 * a, 0.05, -0.1 * a]))
        memory.append((s, [a], [-(s_prime[0] ** 2)], s_prime, [1.0]))
        s = s_prime
    s, a, r, s_prime, done_mask = (torch.tensor(np.array(x), dtype=torch.float) for x in zip(*memory))
    for step in range(2):
        target = r + 0.99 * q_target.Q1(s_prime, mu_target(s_prime)) * done_mask
        q_loss = F.smooth_l1_loss(q.Q1(s, a), target.detach())
        q_optimizer.zero_grad()
        q_loss.backward()
        q_optimizer.step()

        mu_loss = -q.Q1(s, mu(s)).mean()
        mu_optimizer.zero_grad()
        mu_loss.backward()
        mu_optimizer.step()
        for net, net_target in ((mu, mu_target), (q, q_target)):
            for param_target, param in zip(net_target.parameters(), net.parameters()):
                param_target.data.copy_(param_target.data * (1.0 - 0.005) + param.data * 0.005)
        yield "ddpg", [q_loss, mu_loss, s]


def program():
    policy = TD3(3, 1, 2.0)
    yield "initial", [policy.actor, policy.critic, policy.critic_target]
    replay_buffer = ReplayBuffer(3, 1)
    state = np.zeros(3)
    for t in range(20):
        action = (
            policy.select_action(np.array(state))
            + np.random.normal(0, 2.0 * 0.1, size=1)
        ).clip(-2.0, 2.0)
        next_state = np.tanh(state + np.array([action[0], 0.1, -action[0] * 0.5]))
        replay_buffer.add(state, action, next_state, -np.sum(next_state ** 2), t % 10 == 9)
        state = next_state if t % 10 != 9 else np.zeros(3)
    yield "losses", [policy.train(replay_buffer) for _ in range(4)]
    yield "gradients", [policy.critic, policy.actor]
    yield from ddpg()
