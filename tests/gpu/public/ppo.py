"""Proximal policy optimization, many environments at once: a rollout, then epochs of minibatches."""

import argparse
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions.categorical import Categorical


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--total-timesteps', type=int, default=500000)
    parser.add_argument('--learning-rate', type=float, default=2.5e-4)
    parser.add_argument('--num-envs', type=int, default=16)
    parser.add_argument('--num-steps', type=int, default=128)
    parser.add_argument('--anneal-lr', action='store_true')
    parser.add_argument('--gamma', type=float, default=0.99)
    parser.add_argument('--gae-lambda', type=float, default=0.95)
    parser.add_argument('--num-minibatches', type=int, default=4)
    parser.add_argument('--update-epochs', type=int, default=4)
    parser.add_argument('--clip-coef', type=float, default=0.2)
    parser.add_argument('--ent-coef', type=float, default=0.01)
    parser.add_argument('--vf-coef', type=float, default=0.5)
    parser.add_argument('--max-grad-norm', type=float, default=0.5)
    parser.add_argument('--width', type=int, default=64)
    parser.add_argument('--save-every', type=int, default=50)
    args = parser.parse_args()
    args.batch_size = args.num_envs * args.num_steps
    args.minibatch_size = args.batch_size // args.num_minibatches
    return args


class Walks:
    """So many walkers on a line, who are to reach +1 and not -1 while a wind blows."""

    observations, actions = 4, 3

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)

    def reset(self):
        self.at = self.rng.uniform(-0.2, 0.2, self.n)
        self.speed = np.zeros(self.n)
        self.wind = self.rng.normal(0, 0.01, self.n)
        return self._observation()

    def _observation(self):
        return np.stack([self.at, self.speed, self.wind, np.abs(self.at)], 1).astype(np.float32)

    def step(self, action):
        self.speed = 0.9 * self.speed + 0.02 * (action - 1) + self.wind
        self.at = self.at + self.speed
        reward = np.where(self.at > 1, 1.0, np.where(self.at < -1, -1.0, -0.01)).astype(np.float32)
        done = np.abs(self.at) > 1
        self.at[done], self.speed[done] = self.rng.uniform(-0.2, 0.2, done.sum()), 0.0
        return self._observation(), reward, done


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, envs, width):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(envs.observations, width)), nn.Tanh(),
                                    layer_init(nn.Linear(width, width)), nn.Tanh(),
                                    layer_init(nn.Linear(width, 1), std=1.0))
        self.actor = nn.Sequential(layer_init(nn.Linear(envs.observations, width)), nn.Tanh(),
                                   layer_init(nn.Linear(width, width)), nn.Tanh(),
                                   layer_init(nn.Linear(width, envs.actions), std=0.01))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


if __name__ == '__main__':
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    envs = Walks(args.num_envs, args.seed)
    agent = Agent(envs, args.width).to(device)
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)

    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(*shape, envs.observations).to(device)
    actions = torch.zeros(shape).to(device)
    logprobs, rewards, dones, values = (torch.zeros(shape).to(device) for _ in range(4))
    global_step = gradient_steps = 0
    start_time = time.time()
    next_obs = torch.tensor(envs.reset()).to(device)
    next_done = torch.zeros(args.num_envs).to(device)
    num_updates = args.total_timesteps // args.batch_size
    for update in range(1, num_updates + 1):
        if args.anneal_lr:
            optimizer.param_groups[0]['lr'] = (1.0 - (update - 1.0) / num_updates) * args.learning_rate
        for step in range(args.num_steps):
            global_step += args.num_envs
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[step] = value.flatten()
            actions[step], logprobs[step] = action, logprob
            observation, reward, done = envs.step(action.cpu().numpy())
            rewards[step] = torch.tensor(reward).to(device)
            next_obs, next_done = torch.tensor(observation).to(device), torch.tensor(done).float().to(device)
        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages, lastgaelam = torch.zeros_like(rewards), 0
            for t in reversed(range(args.num_steps)):
                nonterminal = 1.0 - (next_done if t == args.num_steps - 1 else dones[t + 1])
                nextvalues = next_value if t == args.num_steps - 1 else values[t + 1]
                delta = rewards[t] + args.gamma * nextvalues * nonterminal - values[t]
                advantages[t] = lastgaelam = delta + args.gamma * args.gae_lambda * nonterminal * lastgaelam
            returns = advantages + values
        print(f'rollout {update}/{num_updates} gradient_step={gradient_steps} global_step={global_step} '
              f'mean reward {rewards.mean().item():.4f}')

        b_obs = obs.reshape(-1, envs.observations)
        b_actions, b_logprobs, b_advantages, b_returns = (t.reshape(-1) for t in (actions, logprobs, advantages, returns))
        b_inds = np.arange(args.batch_size)
        for epoch in range(args.update_epochs):
            np.random.shuffle(b_inds)
            for start in range(0, args.batch_size, args.minibatch_size):
                mb_inds = b_inds[start:start + args.minibatch_size]
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions.long()[mb_inds])
                ratio = (newlogprob - b_logprobs[mb_inds]).exp()
                mb_advantages = b_advantages[mb_inds]
                mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
                pg_loss = torch.max(-mb_advantages * ratio, -mb_advantages * torch.clamp(
                    ratio, 1 - args.clip_coef, 1 + args.clip_coef)).mean()
                v_loss = 0.5 * ((newvalue.view(-1) - b_returns[mb_inds]) ** 2).mean()
                entropy_loss = entropy.mean()
                loss = pg_loss - args.ent_coef * entropy_loss + v_loss * args.vf_coef
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
                gradient_steps += 1
        print(f'update {update}/{num_updates} gradient_step={gradient_steps} loss {loss.item():.4f} '
              f'SPS: {int(global_step / (time.time() - start_time))} '
              f'mem {torch.cuda.max_memory_allocated() / 2**20:.1f}MiB')
        if update % args.save_every == 0:
            os.makedirs('runs', exist_ok=True)
            torch.save(agent.state_dict(), 'runs/ppo.pt')
            print('model saved to runs/ppo.pt')
