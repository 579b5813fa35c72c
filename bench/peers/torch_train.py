#!/usr/bin/env python3
"""The peer of `titan bench train`: the same decoder trained by PyTorch on the CPU.

    python3 bench/peers/torch_train.py --preset dense-20m --dtype bf16 --steps 8 [--threads N] [--compile]

The model is the same: RMSNorm, rotary grouped-query attention, SwiGLU, an output matrix of its own. So is a step: forward and backward of a
batch of made-up rows, mean cross-entropy, the gradient clipped to norm 1, AdamW. float32 masters; bf16 through autocast, which keeps norms
and the loss in float32, as PyTorch's users do. Two steps warm up, the median of the others counts.

Prints one JSON object with the fields of FIELDS. `gflops` counts (6 N + 6 L T D) a token: N parameters without the embedding, causal
attention as half of its square.
"""
import time

STARTED = time.perf_counter()

import argparse
import json
import os
import resource
import statistics
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

FIELDS = ("peer", "preset", "moe", "dtype", "threads", "params", "tokens_per_step", "tokens_per_s", "step_s", "gflops", "peak_rss_mib", "first_step_s",
          "loss_first", "loss_last")
WARM_UP = 2


class Shape(NamedTuple):
    dim: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    vocab: int
    context: int
    rows: int  # of `context` tokens in a step


PRESETS = {
    "dense-20m": Shape(256, 8, 8, 4, 768, 8192, 256, 8),
    "dense-100m": Shape(768, 12, 12, 4, 2048, 32768, 512, 4),
    "debug": Shape(64, 2, 4, 2, 192, 256, 128, 8),
}


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        wide = x.float()
        scale = (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return (self.gain * (wide * scale)).to(x.dtype)


def rotate(x, cos, sin):
    """Halves (a, b) of each head to (a cos - b sin, b cos + a sin)."""
    a, b = x.split(x.shape[-1] // 2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.head = s.dim // s.heads
        self.heads, self.kv_heads = s.heads, s.kv_heads
        self.before_attention, self.before_hidden = Norm(s.dim), Norm(s.dim)
        self.query, self.output = linear(s.dim, s.dim), linear(s.dim, s.dim)
        self.key, self.value = linear(s.dim, s.kv_heads * self.head), linear(s.dim, s.kv_heads * self.head)
        self.gate, self.up, self.down = linear(s.dim, s.hidden), linear(s.dim, s.hidden), linear(s.hidden, s.dim)

    def split(self, x, heads):
        return x.unflatten(-1, (heads, self.head)).transpose(1, 2)

    def forward(self, x, cos, sin):
        y = self.before_attention(x)
        q = rotate(self.split(self.query(y), self.heads), cos, sin)
        k = rotate(self.split(self.key(y), self.kv_heads), cos, sin)
        v = self.split(self.value(y), self.kv_heads)
        # Each kv head once for every query head that reads it.
        k, v = (z.repeat_interleave(self.heads // self.kv_heads, dim=1) for z in (k, v))
        x = x + self.output(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.before_hidden(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embedding = nn.Embedding(s.vocab, s.dim)
        self.layers = nn.ModuleList([Layer(s) for _ in range(s.layers)])
        self.last, self.logits = Norm(s.dim), linear(s.dim, s.vocab)

    def forward(self, ids, labels, cos, sin):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.cross_entropy(self.logits(self.last(x)).float().flatten(0, 1), labels.flatten())


def tables(s, dtype):
    half = s.dim // s.heads // 2
    angles = torch.outer(torch.arange(s.context).float(), 500000.0 ** (-torch.arange(half).float() / half))
    return angles.cos().to(dtype), angles.sin().to(dtype)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--preset", choices=sorted(PRESETS), default="dense-20m")
    p.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--compile", action="store_true")
    p.add_argument("--json", action="store_true", help="accepted, the output is JSON in any case")
    return p.parse_args()


def main():
    o = arguments()
    s = PRESETS[o.preset]
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[o.dtype]
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    model = Decoder(s)
    loss_of = torch.compile(model) if o.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    cos, sin = tables(s, dtype)
    seconds, losses, first = [], [], None
    for step in range(WARM_UP + o.steps):
        rows = torch.randint(s.vocab, (s.rows, s.context + 1))
        begun = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=o.dtype == "bf16"):
            loss = loss_of(rows[:, :-1], rows[:, 1:], cos, sin)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        ended = time.perf_counter()
        first = first or ended - STARTED
        if step >= WARM_UP:
            seconds.append(ended - begun)
    median = statistics.median(seconds)
    params = sum(p.numel() for p in model.parameters())
    tokens = s.rows * s.context
    flops = tokens * 6 * (params - s.vocab * s.dim + s.layers * s.context * s.dim)
    peer = f"torch {torch.__version__} {'compile' if o.compile else 'eager'}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    values = (peer, o.preset, None, o.dtype, o.threads, params, tokens, round(tokens / median, 1), round(median, 4), round(flops / median / 1e9, 1), peak,
              round(first, 2), round(losses[0], 4), round(losses[-1], 4))
    print(json.dumps(dict(zip(FIELDS, values, strict=True))))


if __name__ == "__main__":
    main()
