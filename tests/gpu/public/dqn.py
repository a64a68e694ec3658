"""Deep Q-learning on a pole that must not fall, with replay memory and a target network."""

import argparse
import math
import os
import random
from collections import deque, namedtuple
from itertools import count

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
Transition = namedtuple('Transition', ('state', 'action', 'next_state', 'reward'))


class Pole:
    """A cart with a pole on it; four numbers are its state, pushing left or right the actions."""

    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return self.state

    def step(self, action):
        x, v, theta, omega = self.state
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * omega ** 2 * math.sin(theta)) / 1.1
        alpha = (9.8 * math.sin(theta) - math.cos(theta) * push) / (0.5 * (4 / 3 - 0.1 * math.cos(theta) ** 2 / 1.1))
        a = push - 0.05 * alpha * math.cos(theta) / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * a, theta + 0.02 * omega, omega + 0.02 * alpha]
        self.steps += 1
        terminated = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095
        return self.state, 1.0, terminated, self.steps >= 500


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions, width):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, width)
        self.layer2 = nn.Linear(width, width)
        self.layer3 = nn.Linear(width, n_actions)

    def forward(self, x):
        return self.layer3(F.relu(self.layer2(F.relu(self.layer1(x)))))


parser = argparse.ArgumentParser()
parser.add_argument('--episodes', type=int, default=600)
parser.add_argument('--max-steps', type=int, default=100000)
parser.add_argument('--batch-size', type=int, default=128)
parser.add_argument('--width', type=int, default=128)
parser.add_argument('--gamma', type=float, default=0.99)
parser.add_argument('--eps-start', type=float, default=0.9)
parser.add_argument('--eps-end', type=float, default=0.05)
parser.add_argument('--eps-decay', type=float, default=1000)
parser.add_argument('--tau', type=float, default=0.005)
parser.add_argument('--lr', type=float, default=1e-4)
parser.add_argument('--log-every', type=int, default=1000)
parser.add_argument('--out', default='out')
args = parser.parse_args()

env = Pole()
random.seed(0)
torch.manual_seed(0)
policy_net = DQN(4, 2, args.width).to(device)
target_net = DQN(4, 2, args.width).to(device)
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=args.lr, amsgrad=True)
memory = ReplayMemory(10000)
steps_done = 0


def select_action(state):
    eps = args.eps_end + (args.eps_start - args.eps_end) * math.exp(-1.0 * steps_done / args.eps_decay)
    if random.random() > eps:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(2)]], device=device, dtype=torch.long)


def optimize_model():
    if len(memory) < args.batch_size:
        return None
    batch = Transition(*zip(*memory.sample(args.batch_size)))
    non_final_mask = torch.tensor([s is not None for s in batch.next_state], device=device, dtype=torch.bool)
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch, action_batch, reward_batch = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
    state_action_values = policy_net(state_batch).gather(1, action_batch)
    next_state_values = torch.zeros(args.batch_size, device=device)
    with torch.no_grad():
        next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
    expected = (next_state_values * args.gamma) + reward_batch
    loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss


durations = []
for i_episode in range(args.episodes):
    state = torch.tensor(env.reset(), dtype=torch.float32, device=device).unsqueeze(0)
    for t in count():
        action = select_action(state)
        observation, reward, terminated, truncated = env.step(action.item())
        reward = torch.tensor([reward], device=device)
        next_state = None if terminated else torch.tensor(observation, dtype=torch.float32, device=device).unsqueeze(0)
        memory.push(state, action, next_state, reward)
        state = next_state
        loss = optimize_model()
        # soft update of the target network's weights
        target_state, policy_state = target_net.state_dict(), policy_net.state_dict()
        for key in policy_state:
            target_state[key] = policy_state[key] * args.tau + target_state[key] * (1 - args.tau)
        target_net.load_state_dict(target_state)
        steps_done += 1
        if loss is not None and steps_done % args.log_every == 0:
            mean = sum(durations[-100:]) / max(len(durations[-100:]), 1)
            print(f'step {steps_done} episode {i_episode} loss {loss.item():.4f} mean duration {mean:.1f} '
                  f'mem {torch.cuda.max_memory_allocated() / 2**20:.1f}MiB')
        if terminated or truncated:
            durations.append(t + 1)
            break
    if steps_done >= args.max_steps:
        break
os.makedirs(args.out, exist_ok=True)
torch.save(policy_net.state_dict(), os.path.join(args.out, 'dqn.pt'))
print('Complete')
