"""Optimizers of other libraries, after their published algorithms: the number of the step is a number of Python."""

import math

import torch
from torch.optim import Optimizer


class Stepping(Optimizer):
    """Updates each parameter by ``update(group, state, parameter, gradient)``."""

    zeros: tuple[str, ...] = ()

    def __init__(self, params, **defaults):
        super().__init__(params, {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8, "decay": 0.01, **defaults})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            self.begin(group)
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state.update({name: torch.zeros_like(p) for name in self.zeros})
                state["step"] += 1
                self.update(group, state, p, p.grad)

    def begin(self, group):
        pass


class AdaBelief(Stepping):
    """Zhuang et al. 2020."""

    zeros = ("mean", "variance")

    def update(self, group, state, p, grad):
        (beta1, beta2), step = group["betas"], state["step"]
        mean, variance = state["mean"], state["variance"]
        mean.mul_(beta1).add_(grad, alpha=1 - beta1)
        rest = grad - mean
        variance.mul_(beta2).addcmul_(rest, rest, value=1 - beta2).add_(group["eps"])
        scale = (variance.sqrt() / math.sqrt(1 - beta2**step)).add_(group["eps"])
        p.addcdiv_(mean, scale, value=-group["lr"] / (1 - beta1**step))


class Lamb(Stepping):
    """You et al. 2019; the step is counted in the group."""

    zeros = ("mean", "square")

    def begin(self, group):
        group["step"] = group.get("step", 0) + 1

    def update(self, group, state, p, grad):
        (beta1, beta2), step = group["betas"], group["step"]
        mean = state["mean"].mul_(beta1).add_(grad, alpha=1 - beta1) / (1 - beta1**step)
        square = state["square"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        ratio = mean.div_((square.sqrt() / math.sqrt(1 - beta2**step)).add_(group["eps"]))
        ratio.add_(p, alpha=group["decay"])
        weight, size = p.norm(), ratio.norm()
        trust = torch.where(weight > 0, torch.where(size > 0, weight / size, 1.0), 1.0)
        p.add_(ratio * trust, alpha=-group["lr"])


class Adan(Stepping):
    """Xie et al. 2022; the corrections use ``math.pow``."""

    zeros = ("mean", "difference", "square")

    def update(self, group, state, p, grad):
        betas, step = (0.98, 0.92, 0.99), state["step"]
        if step == 1:
            state["before"] = grad.clone()
        change = grad - state["before"]
        corrections = [1.0 - math.pow(beta, step) for beta in betas]
        state["mean"].lerp_(grad, 1 - betas[0])
        state["difference"].lerp_(change, 1 - betas[1])
        mixed = grad + betas[1] * change
        state["square"].mul_(betas[2]).addcmul_(mixed, mixed, value=1 - betas[2])
        scale = (state["square"].sqrt() / math.sqrt(corrections[2])).add_(group["eps"])
        p.addcdiv_(state["mean"], scale, value=-group["lr"] / corrections[0])
        p.addcdiv_(state["difference"], scale, value=-group["lr"] * betas[1] / corrections[1])
        p.div_(1 + group["lr"] * group["decay"])
        state["before"].copy_(grad)


class RAdam(Stepping):
    """Liu et al. 2020: the number of the step occurs several times under a root, from the sixth step on."""

    zeros = ("mean", "square")

    def update(self, group, state, p, grad):
        (beta1, beta2), step = group["betas"], state["step"]
        state["mean"].lerp_(grad, 1 - beta1)
        state["square"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        most = 2 / (1 - beta2) - 1
        length = most - 2 * step * beta2**step / (1 - beta2**step)
        size = group["lr"] / (1 - beta1**step)
        if length <= 5:
            p.add_(state["mean"], alpha=-size)
            return
        factor = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
        scale = (state["square"].sqrt() / math.sqrt(1 - beta2**step)).add_(group["eps"])
        p.addcdiv_(state["mean"], scale, value=-size * math.sqrt(factor))


class Soap(Stepping):
    """Vyas et al. 2024: Adam in the eigenbasis of Shampoo, whose basis changes in every fifth step."""

    zeros = ("mean", "square")

    def update(self, group, state, p, grad):
        (beta1, beta2), step = group["betas"], state["step"]
        if "left" not in state:
            state["left"], state["basis"] = grad @ grad.T, torch.eye(len(grad))
        turned = state["basis"].T @ grad
        state["mean"].lerp_(turned, 1 - beta1)
        state["square"].mul_(beta2).addcmul_(turned, turned, value=1 - beta2)
        size = group["lr"] * math.sqrt(1 - math.pow(beta2, step)) / (1 - math.pow(beta1, step))
        p.add_(state["basis"] @ (state["mean"] / state["square"].sqrt().add_(group["eps"])), alpha=-size)
        state["left"].lerp_(grad @ grad.T, 1 - beta2)
        if step % 5 == 0:
            state["basis"] = torch.linalg.qr(state["left"] @ state["basis"])[0]


class ScheduleFree(Stepping):
    """Defazio et al. 2024: sums and maxima of floats in the group."""

    zeros = ("square",)

    def begin(self, group):
        step = group.get("step", 0)
        group["rate"] = group["lr"] * min((step + 1) / 4, 1.0)
        group["highest"] = max(group["rate"], group.get("highest", -1.0))
        group["sum"] = group.get("sum", 0.0) + group["highest"] ** 2
        group["step"] = step + 1

    def update(self, group, state, p, grad):
        beta1, beta2 = group["betas"]
        if "z" not in state:
            state["z"] = p.clone()
        weight, rate = group["highest"] ** 2 / group["sum"], group["rate"]
        state["square"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        scaled = grad / (state["square"] / (1 - beta2 ** group["step"])).sqrt().add_(group["eps"])
        p.lerp_(state["z"], weight)
        p.add_(scaled, alpha=rate * (beta1 * (1 - weight) - 1))
        state["z"].sub_(scaled, alpha=rate)


class Decaying(Stepping):
    """Numbers in an attribute, a list and the group that change in each step."""

    zeros = ("mean",)
    count = 0
    rates = (1.0, 1.0)

    def begin(self, group):
        self.count += 1
        self.rates = [self.rates[0] * 0.9, self.rates[1] + 1.0]
        group["rate"] = (
            group["lr"] * self.rates[0] * math.log(self.count + 1, 2) * 0.5 * (1 + math.cos(self.count))
        )

    def update(self, group, state, p, grad):
        state["mean"].lerp_(grad, 1 / (state["step"] + 1))
        p.add_(state["mean"], alpha=-group["rate"] / self.rates[1])


OPTIMIZERS = (AdaBelief, Lamb, Adan, RAdam, Soap, ScheduleFree, Decaying)
