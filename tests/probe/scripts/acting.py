"""A policy that acts in an environment: acting.py CLOCK dqn|reinforce.

dqn        acts with gradients on, an observation of shape [4] at a time; each step is a batch of 32
           from what it remembers
reinforce  acts through a whole episode of 20 to 39 moves, and learns from it in one backward pass
"""

import collections
import random
import sys

import own_clock
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
clock = own_clock.OwnClock()
policy = torch.nn.Sequential(
    torch.nn.Linear(4, 128), torch.nn.Dropout(0.6), torch.nn.ReLU(), torch.nn.Linear(128, 2)
)
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)


def observe():
    return torch.tensor([random.uniform(-1, 1) for _ in range(4)])


def learn(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    clock.step()


def dqn():
    memory = collections.deque(maxlen=1000)
    while True:
        for _ in range(4):
            state = observe()
            memory.append((state, int(policy(state).argmax()), random.random(), observe()))
        if len(memory) < 32:
            continue
        states, actions, rewards, following = zip(*random.sample(memory, 32), strict=True)
        values = policy(torch.stack(states)).gather(1, torch.tensor(actions)[:, None])[:, 0]
        with torch.no_grad():
            best = policy(torch.stack(following)).max(1).values
        learn(torch.nn.functional.mse_loss(values, torch.tensor(rewards) + 0.99 * best))


def reinforce():
    while True:
        chosen, rewards = [], []
        for _ in range(random.randint(20, 39)):
            choice = torch.distributions.Categorical(logits=policy(observe()))
            chosen.append(choice.log_prob(choice.sample()))
            rewards.append(random.random())
        learn(-(torch.stack(chosen) * torch.tensor(rewards)).sum())


{"dqn": dqn, "reinforce": reinforce}[sys.argv[2]]()
