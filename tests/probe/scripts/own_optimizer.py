"""An optimizer of the scripts' own, for those in which it does not matter which one trains.

torch's own import all of torch.compile with their first step, which takes as long as torch itself.
"""

import torch


class PlainSGD(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    def add_param_group(self, group):
        self.param_groups.append({**self.defaults, **group, "params": list(group["params"])})

    def zero_grad(self, set_to_none=True):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=group["lr"])
