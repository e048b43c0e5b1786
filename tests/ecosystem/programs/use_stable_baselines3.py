"""stable-baselines3: PPO on CartPole for a few hundred steps."""

import json

import warm
from stable_baselines3 import PPO

model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
model.learn(128)
values = model.policy.state_dict()
print(json.dumps({"weights": sum(v.abs().sum().item() for v in values.values()), "action": int(model.predict([0.0, 0.1, 0.0, -0.1], deterministic=True)[0])}))
warm.measure("64 steps on CartPole and two epochs", lambda: model.learn(64))
