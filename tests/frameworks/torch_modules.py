"""PyTorch modules of common kinds, small: what is converted, compiled and compared with torch."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everyone calls it
from torch import nn


class Attention(nn.Module):
    """With its projection, causal without a mask."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        split = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class ResNetBlock(nn.Module):
    def __init__(self, given: int = 8, made: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, made, 3, stride=2, padding=1, bias=False)
        self.second = nn.Conv2d(made, made, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(made) for _ in range(3))
        self.skip = nn.Conv2d(given, made, 1, stride=2, bias=False)

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.norms[2](self.skip(x)))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x):
        return self.cells(x)


class Mixer(nn.Module):
    def __init__(self, patches: int = 9, width: int = 16) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(patches, 32), nn.GELU(), nn.Linear(32, patches))
        self.channels = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, x):
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class UNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.into = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(2 * width, 3, 3, padding=1)

    def forward(self, x):
        a = F.silu(self.norm(self.into(x)))
        return self.out(torch.cat([a, self.up(F.silu(self.down(a)))], 1))


class Mlp(nn.Module):
    """With results in a dictionary."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        layers = nn.Linear(width, 48), nn.GELU(approximate="tanh"), nn.Linear(48, width)
        self.layers = nn.Sequential(nn.LayerNorm(width), *layers)

    def forward(self, x):
        return {"y": x + self.layers(x), "norm": x.norm(dim=-1)}


class Bag(nn.Module):
    """Embeddings of a few words, weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 12, padding_idx=0)
        self.out = nn.Linear(12, 5)

    def forward(self, ids, weights):
        found = self.embedding(ids) * weights.unsqueeze(-1)
        return F.log_softmax(self.out(found.sum(1) / weights.sum(1, keepdim=True)), -1)


class Diffusion(nn.Module):
    """One step back, with the time's sines and a buffer of what is left of the image."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, width))
        self.noise = nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, width))
        left = torch.cumprod(1 - torch.linspace(1e-4, 2e-2, 100), 0)
        self.register_buffer("left", left)

    def forward(self, x, step):
        angles = step[:, None] * torch.exp(-math.log(1e4) * torch.arange(8) / 8)
        noise = self.noise(x + self.time(torch.cat([angles.sin(), angles.cos()], -1)))
        left = self.left[step][:, None]
        return ((x - (1 - left).sqrt() * noise) / left.sqrt()).clamp(-3, 3)


def cases() -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    """Each with arguments, the same every time."""
    torch.manual_seed(0)
    mask = torch.rand(10, 10) > 0.3
    ids, steps = torch.randint(0, 50, (3, 6)), torch.tensor([1, 50, 99, 3])
    return {
        "attention": (Attention(), (torch.randn(2, 10, 32),)),
        "attention with a mask": (Attention(), (torch.randn(2, 10, 32), mask)),
        "resnet": (ResNetBlock().eval(), (torch.randn(2, 8, 12, 12),)),
        "resnet in training": (ResNetBlock(), (torch.randn(2, 8, 12, 12),)),
        "lstm": (Lstm(), (torch.randn(2, 7, 8),)),
        "mixer": (Mixer(), (torch.randn(2, 9, 16),)),
        "unet": (UNet(), (torch.randn(1, 3, 8, 8),)),
        "mlp": (Mlp(), (torch.randn(4, 24),)),
        "mlp in bf16": (Mlp().bfloat16(), (torch.randn(4, 24).bfloat16(),)),
        "embedding bag": (Bag(), (ids, torch.rand(3, 6))),
        "diffusion": (Diffusion(), (torch.randn(4, 16), steps)),
    }
