"""Twin delayed policy gradients: the critics learn at each step, the actor at every second one."""

import argparse
import copy
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


class Reach:
    """A point mass that is to reach another point of the plane."""

    state_dim, action_dim, max_action = 6, 2, 1.0

    def reset(self):
        self.at, self.speed, self.goal, self.t = np.zeros(2), np.zeros(2), np.random.uniform(-1, 1, 2), 0
        return self.state()

    def state(self):
        return np.concatenate([self.at, self.speed, self.goal])

    def step(self, action):
        self.speed = 0.9 * self.speed + 0.05 * np.clip(action, -1, 1)
        self.at = self.at + self.speed
        self.t += 1
        return self.state(), -float(np.linalg.norm(self.at - self.goal)), self.t >= 100


class ReplayBuffer:
    def __init__(self, state_dim, action_dim, max_size=int(1e6)):
        self.max_size, self.ptr, self.size = max_size, 0, 0
        self.state, self.next_state = np.zeros((max_size, state_dim)), np.zeros((max_size, state_dim))
        self.action, self.reward, self.not_done = np.zeros((max_size, action_dim)), np.zeros((max_size, 1)), np.zeros((max_size, 1))

    def add(self, state, action, next_state, reward, done):
        i = self.ptr
        self.state[i], self.action[i], self.next_state[i], self.reward[i], self.not_done[i] = state, action, next_state, reward, 1 - done
        self.ptr, self.size = (i + 1) % self.max_size, min(self.size + 1, self.max_size)

    def sample(self, batch_size):
        ind = np.random.randint(0, self.size, size=batch_size)
        return tuple(torch.FloatTensor(a[ind]).to(device)
                     for a in (self.state, self.action, self.next_state, self.reward, self.not_done))


class Actor(nn.Module):
    def __init__(self, state_dim, action_dim, max_action, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(state_dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, action_dim), nn.Tanh())
        self.max_action = max_action

    def forward(self, state):
        return self.max_action * self.net(state)


class Critic(nn.Module):
    def __init__(self, state_dim, action_dim, width):
        super().__init__()
        self.q1, self.q2 = (nn.Sequential(nn.Linear(state_dim + action_dim, width), nn.ReLU(), nn.Linear(width, width),
                                          nn.ReLU(), nn.Linear(width, 1)) for _ in range(2))

    def forward(self, state, action):
        sa = torch.cat([state, action], 1)
        return self.q1(sa), self.q2(sa)

    def Q1(self, state, action):
        return self.q1(torch.cat([state, action], 1))


class TD3:
    def __init__(self, state_dim, action_dim, max_action, args):
        self.args, self.max_action, self.total_it = args, max_action, 0
        self.actor = Actor(state_dim, action_dim, max_action, args.width).to(device)
        self.actor_target = copy.deepcopy(self.actor)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic = Critic(state_dim, action_dim, args.width).to(device)
        self.critic_target = copy.deepcopy(self.critic)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=3e-4)

    def select_action(self, state):
        state = torch.FloatTensor(state.reshape(1, -1)).to(device)
        return self.actor(state).cpu().data.numpy().flatten()

    def train(self, replay_buffer):
        self.total_it += 1
        state, action, next_state, reward, not_done = replay_buffer.sample(self.args.batch_size)
        with torch.no_grad():
            noise = (torch.randn_like(action) * 0.2).clamp(-0.5, 0.5)
            next_action = (self.actor_target(next_state) + noise).clamp(-self.max_action, self.max_action)
            target_Q = reward + not_done * self.args.discount * torch.min(*self.critic_target(next_state, next_action))
        current_Q1, current_Q2 = self.critic(state, action)
        critic_loss = F.mse_loss(current_Q1, target_Q) + F.mse_loss(current_Q2, target_Q)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        if self.total_it % self.args.policy_freq == 0:
            actor_loss = -self.critic.Q1(state, self.actor(state)).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            for net, target in ((self.critic, self.critic_target), (self.actor, self.actor_target)):
                for param, target_param in zip(net.parameters(), target.parameters()):
                    target_param.data.copy_(self.args.tau * param.data + (1 - self.args.tau) * target_param.data)
        return critic_loss


def eval_policy(policy, episodes):
    env, total = Reach(), 0.0
    for _ in range(episodes):
        state, done = env.reset(), False
        while not done:
            state, reward, done = env.step(policy.select_action(state))
            total += reward
    print(f'Evaluation over {episodes} episodes: {total / episodes:.3f}')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--seed', default=0, type=int)
    parser.add_argument('--start_timesteps', default=1000, type=int)
    parser.add_argument('--eval_freq', default=5000, type=int)
    parser.add_argument('--eval_episodes', default=3, type=int)
    parser.add_argument('--max_timesteps', default=1000000, type=int)
    parser.add_argument('--expl_noise', default=0.1, type=float)
    parser.add_argument('--batch_size', default=256, type=int)
    parser.add_argument('--width', default=256, type=int)
    parser.add_argument('--discount', default=0.99, type=float)
    parser.add_argument('--tau', default=0.005, type=float)
    parser.add_argument('--policy_freq', default=2, type=int)
    parser.add_argument('--log_freq', default=500, type=int)
    parser.add_argument('--save_model', action='store_true')
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env = Reach()
    policy = TD3(env.state_dim, env.action_dim, env.max_action, args)
    replay_buffer = ReplayBuffer(env.state_dim, env.action_dim, 100000)
    state = env.reset()
    for t in range(args.max_timesteps):
        if t < args.start_timesteps:
            action = np.random.uniform(-1, 1, env.action_dim)
        else:
            action = (policy.select_action(state) + np.random.normal(0, args.expl_noise, env.action_dim)).clip(-1, 1)
        next_state, reward, done = env.step(action)
        replay_buffer.add(state, action, next_state, reward, float(done))
        state = env.reset() if done else next_state
        if t >= args.start_timesteps:
            loss = policy.train(replay_buffer)
            if policy.total_it % args.log_freq == 0:
                print(f'Total T: {t + 1} Updates: {policy.total_it} Critic loss: {loss.item():.4f} '
                      f'mem {torch.cuda.max_memory_allocated() / 2**20:.1f}MiB')
        if (t + 1) % args.eval_freq == 0:
            eval_policy(policy, args.eval_episodes)
            if args.save_model:
                os.makedirs('models', exist_ok=True)
                torch.save(policy.actor.state_dict(), 'models/actor.pt')
